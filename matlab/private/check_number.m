function value = check_number(value, name, allowed, requirement)
% check_number  One real number for which the function handle `allowed` holds.
  if ~(isnumeric(value) && isscalar(value) && isreal(value) && isfinite(value) && allowed(value))
    error('online_psp:badOption', '%s must be a number %s.', name, requirement);
  end
  value = double(value);
end
