function tests = test_models()
% test_models  Model files, written and read here; the exchange with Python is tested from there.
  tests = {
    'models: struct, file, struct', @round_trip
    'models: from each algorithm', @from_algorithms
    'models: transform and its inverse', @transforms
    'models: whitening', @whitening
    'models: bad files', @bad_files
    'models: bad structs', @bad_structs
  };
end

function model = example()
  [U, ~] = qr(reshape(mod((1:24) * 7, 11), 8, 3), 0);
  model = struct('components', U.', 'explained_variance', [3; 2; 1], 'mean', 1:8, 'n_samples_seen', 50, ...
    'noise_variance', 0.5, 'whiten', false);
end

function path = temporary()
  path = [tempname(), '.mat'];
end

function round_trip()
  path = temporary();
  cleanup = onCleanup(@() delete(path));
  model = example();
  save_model(path, model);
  check(isequal(load_model(path), model), 'the model came back changed');
  model.noise_variance = [];
  model.whiten = true;
  save_model(path, model);
  check(isequal(load_model(path), model), 'the model came back changed');
end

function from_algorithms()
  [X, U] = spiked_covariance(800, 20, 3, 'seed', 9);
  for name = {'FSM', 'IPCA', 'CCIPCA'}
    path = temporary();
    cleanup = onCleanup(@() delete(path));
    source = feval(name{1}, 3, 20);
    check_error('online_psp:notStarted', @() save_model(path, source));
    source.fit_block(X);
    save_model(path, source);
    model = load_model(path);
    check(subspace_error(model.components.', U) < 0.1 && model.n_samples_seen == 800, '%s: another model', name{1});
    check(all(diff(model.explained_variance) <= 0) && isequal(model.mean, zeros(1, 20)), '%s: variances or mean', name{1});
    clear cleanup
  end
end

function transforms()
  model = example();
  X = spiked_covariance(10, 8, 3, 'seed', 1);
  Z = transform_model(model, X);
  check(norm(Z - (X - model.mean) * model.components.') < 1e-14, 'transform');
  inside = inverse_transform_model(model, Z);
  check(norm(transform_model(model, inside) - Z) < 1e-13, 'inverse');
end

function whitening()
  model = example();
  X = spiked_covariance(10, 8, 3, 'seed', 1);
  plain = transform_model(model, X);
  model.whiten = true;
  Z = transform_model(model, X);
  check(norm(Z - plain ./ sqrt([3 2 1])) < 1e-14, 'whitened');
  check(norm(transform_model(model, inverse_transform_model(model, Z)) - Z) < 1e-13, 'inverse');
end

function bad_files()
  path = temporary();
  check_error('online_psp:badFile', @() load_model(path));
  cleanup = onCleanup(@() delete(path));
  file = fopen(path, 'w');
  fwrite(file, 'this is no MAT file');
  fclose(file);
  check_error('online_psp:badFile', @() load_model(path));
  foreign = struct('a', 1); %#ok<NASGU>
  save(path, '-struct', 'foreign', '-v7');
  check_error('online_psp:badFile', @() load_model(path));
  newer = example();
  newer.format = 'online-psp-model';
  newer.version = 2;
  save(path, '-struct', 'newer', '-v7');
  check_error('online_psp:badFile', @() load_model(path));
  broken = rmfield(newer, 'mean');
  broken.version = 1;
  save(path, '-struct', 'broken', '-v7');
  check_error('online_psp:badFile', @() load_model(path));
  save_model(path, example());
  file = fopen(path, 'r');
  bytes = fread(file, Inf, 'uint8');
  fclose(file);
  file = fopen(path, 'w');
  fwrite(file, bytes(1:round(end / 2)), 'uint8');
  fclose(file);
  check_error('online_psp:badFile', @() load_model(path));
  check_error('online_psp:badFile', @() save_model(fullfile(tempname(), 'model.mat'), example()));
end

function bad_structs()
  check_error('online_psp:badInput', @() transform_model(struct(), ones(1, 8)));
  check_error('online_psp:badInput', @() transform_model(3, ones(1, 8)));
  check_error('online_psp:badShape', @() transform_model(example(), ones(1, 7)));
  check_error('online_psp:badShape', @() inverse_transform_model(example(), ones(1, 8)));
  model = example();
  model.explained_variance = [1; 2];
  check_error('online_psp:badInput', @() transform_model(model, ones(1, 8)));
  model = example();
  model.components(1) = NaN;
  check_error('online_psp:badInput', @() save_model([tempname(), '.mat'], model));
end
