function save_model(path, source)
% save_model  Write a model file that Python and load_model read.
%
%   save_model('model.mat', model)   model: a struct as load_model gives it
%   save_model('model.mat', fsm)     fsm: an FSM, IPCA or CCIPCA that has seen K samples
%
%   From an object, the components are its ordered principal components, with their variances; the
%   mean is zero, because these algorithms take data as centred (set it by way of a struct). The
%   format is in README.md.
%
%   Example
%     fsm = FSM(4, 100);
%     fsm.fit_block(X);
%     save_model('model.mat', fsm);
%
%   See also load_model, transform_model, inverse_transform_model
  if isa(source, 'StreamingAlgorithm')
    [U, variances] = source.principal_components();
    source = struct('components', U.', 'explained_variance', variances, 'mean', zeros(1, source.D), 'n_samples_seen', source.t);
  end
  content = check_model(source);
  content.whiten = double(content.whiten);
  if isempty(content.noise_variance)
    content = rmfield(content, 'noise_variance');
  end
  content.format = 'online-psp-model';
  content.version = 1;
  try
    save(path, '-struct', 'content', '-v7');
  catch problem
    error('online_psp:badFile', 'The file %s cannot be written: %s', path, problem.message);
  end
end
