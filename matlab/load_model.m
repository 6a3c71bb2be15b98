function model = load_model(path)
% load_model  Read a model file, from Python's OnlinePCA.save('model.mat') or from save_model.
%
%   model = load_model('model.mat')
%
%   model.components          K-by-D, one component a row, orthonormal
%   model.explained_variance  K-by-1, largest first
%   model.mean                1-by-D
%   model.n_samples_seen      a number
%   model.noise_variance      a number; [] where the file has none
%   model.whiten              true where transform_model scales to unit variance
%
%   Whatever else the file holds is left out. A file that is missing, truncated or of another kind is
%   an online_psp:badFile error.
%
%   Example
%     model = load_model('model.mat');
%     Z = transform_model(model, X);
%
%   See also save_model, transform_model, inverse_transform_model
  try
    content = load(path, '-mat');
  catch problem
    error('online_psp:badFile', 'The file %s cannot be read as a MAT file: %s', path, problem.message);
  end
  if ~isfield(content, 'format') || ~strcmp(content.format, 'online-psp-model')
    error('online_psp:badFile', 'The file %s holds no online-psp model: its variable ''format'' is not ''online-psp-model''.', path);
  end
  if ~isfield(content, 'version') || ~isequal(double(content.version), 1)
    error('online_psp:badFile', 'The file %s has a version of the model format other than 1, the one known here.', path);
  end
  try
    model = check_model(content);
  catch problem
    error('online_psp:badFile', 'The file %s is not a whole model: %s', path, problem.message);
  end
end
