function value = check_count(value, name)
% check_count  A whole number of at least 1, or an online_psp:badOption error.
  if ~(isnumeric(value) && isscalar(value) && isreal(value) && value == floor(value) && value >= 1 && isfinite(value))
    error('online_psp:badOption', '%s must be a whole number of at least 1.', name);
  end
  value = double(value);
end
