function schedule = step_sizes(rate, default, name)
% step_sizes  A function of the times (1-by-n) that gives their step sizes (1-by-n).
%   From the user's function handle t -> step size, each value checked to lie in [0, 1), or,
%   where that is [], from `default`, which takes all times at once.
  if isempty(rate)
    schedule = default;
  elseif isa(rate, 'function_handle')
    schedule = @(times) arrayfun(@(t) checked(rate(t), t, name), times);
  else
    error('online_psp:badOption', '%s must be a function handle t -> step size, or [] for the default.', name);
  end
end

function step = checked(step, t, name)
  if ~(isnumeric(step) && isscalar(step) && isreal(step) && step >= 0 && step < 1)
    error('online_psp:badOption', '%s(t=%d) must be one number, at least 0 and below 1.', name, t);
  end
  step = double(step);
end
