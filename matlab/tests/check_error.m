function check_error(identifier, action)
% check_error  The action must give an error with this identifier and a message of one line.
%   check_error('online_psp:badShape', @() ...)
  try
    action();
  catch problem
    check(strcmp(problem.identifier, identifier), 'expected %s, got %s (%s)', identifier, problem.identifier, problem.message);
    check(~isempty(problem.message) && ~any(problem.message == 10), 'the message is not one line');
    return
  end
  error('online_psp:testFailed', 'expected %s, but there was no error', identifier);
end
