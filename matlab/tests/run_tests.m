function run_tests(folder)
% run_tests  All tests of the package: one line for each, then "N passed, M failed".
%
%   run_tests(folder)   folder: where write_vectors.py put vectors.mat
%
%   From a shell, in the folder of this file:
%     python write_vectors.py /tmp && octave-cli --eval "run_tests('/tmp')"
%
%   Ends with an error, and so with a non-zero exit code, where a test failed.
  here = fileparts(mfilename('fullpath'));
  addpath(here, fileparts(here));
  if nargin < 1 || ~exist(fullfile(folder, 'vectors.mat'), 'file')
    error('online_psp:badFile', ...
      'There is no vectors.mat: write it with "python write_vectors.py FOLDER", then call run_tests(''FOLDER'').');
  end
  tests = [test_vectors(fullfile(folder, 'vectors.mat')); test_algorithms(); test_errors(); test_functions(); test_models()];
  failed = 0;
  for i = 1:size(tests, 1)
    [name, test] = tests{i, :};
    try
      test();
      fprintf('ok    %s\n', name);
    catch problem
      failed = failed + 1;
      fprintf('FAIL  %s: %s\n', name, problem.message);
    end
  end
  fprintf('%d passed, %d failed\n', size(tests, 1) - failed, failed);
  if failed > 0
    error('online_psp:testsFailed', '%d tests failed.', failed);
  end
end
