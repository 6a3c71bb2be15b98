function model = check_model(model)
% check_model  A model struct in its normal form (see load_model), or an online_psp:badInput error.
  needed = {'components', 'explained_variance', 'mean', 'n_samples_seen'};
  for i = 1:numel(needed)
    name = needed{i};
    if ~isstruct(model) || ~isfield(model, name)
      error('online_psp:badInput', 'A model needs the field ''%s''.', name);
    end
    value = model.(name);
    if ~isnumeric(value) || ~isreal(value) || ~all(isfinite(double(value(:))))
      error('online_psp:badInput', 'The field ''%s'' must be finite real numbers.', name);
    end
  end
  [K, D] = size(model.components);
  expect(model.explained_variance, 'explained_variance', K);
  expect(model.mean, 'mean', D);
  expect(model.n_samples_seen, 'n_samples_seen', 1);
  noise = [];
  if isfield(model, 'noise_variance') && ~isempty(model.noise_variance)
    expect(model.noise_variance, 'noise_variance', 1);
    noise = double(model.noise_variance);
  end
  whiten = isfield(model, 'whiten') && ~isempty(model.whiten) && logical(model.whiten(1));
  model = struct('components', double(full(model.components)), 'explained_variance', double(model.explained_variance(:)), ...
    'mean', double(model.mean(:).'), 'n_samples_seen', double(model.n_samples_seen), 'noise_variance', noise, 'whiten', whiten);
end

function expect(value, name, count)
  if ~isnumeric(value) || numel(value) ~= count
    error('online_psp:badInput', 'The field ''%s'' must have %d values; it has %d.', name, count, numel(value));
  end
end
