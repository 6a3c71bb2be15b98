function check(condition, message, varargin)
% check  An error with a message unless the condition holds.
%   check(condition, message, values...)
  if ~condition
    error('online_psp:testFailed', message, varargin{:});
  end
end
