function value = check_start(value, name, shape)
% check_start  A start array given by the user: real, finite and of the right shape.
  if ~isnumeric(value) || ~isreal(value)
    error('online_psp:badOption', '%s must be real numbers; got %s.', name, class(value));
  end
  if ~isequal(size(value), shape)
    error('online_psp:badShape', '%s must be %d-by-%d; got %s.', name, shape(1), shape(2), size_text(value));
  end
  if ~all(isfinite(value(:)))
    error('online_psp:badOption', '%s must be finite.', name);
  end
  value = double(full(value));
end
