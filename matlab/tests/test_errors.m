function tests = test_errors()
% test_errors  Bad input gives the promised error and leaves the model as it was.
  tests = cell(0, 2);
  for name = {'FSM', 'IPCA', 'CCIPCA'}
    make = @(varargin) feval(name{1}, varargin{:});
    tests = [tests; {
      [name{1} ': bad arguments of the constructor'], @() bad_constructor(make)
      [name{1} ': bad samples, before the start'], @() bad_samples(make, 2)
      [name{1} ': bad samples, after the start'], @() bad_samples(make, 25)
      [name{1} ': a bad step size'], @() bad_step(make)
      [name{1} ': bad options of get_components'], @() bad_components_option(make)
    }]; %#ok<AGROW>
  end
  tests = [tests; {
    'FSM: bad start', @bad_fsm_start
    'IPCA and CCIPCA: bad start', @bad_frame_start
    'StreamingAlgorithm is not for direct use', @not_direct
  }];
end

function bad_constructor(make)
  sizes = {{0, 5}, {-1, 5}, {1.5, 5}, {NaN, 5}, {'a', 5}, {[1 2], 5}, {6, 5}, {2, 0}, {2, 2.5}, {2, Inf}, {2i, 5}};
  for i = 1:numel(sizes)
    check_error('online_psp:badOption', @() make(sizes{i}{:}));
  end
  options = {{'nonsense', 1}, {'block_size'}, {'block_size', 0}, {'block_size', 'large'}, {'learning_rate', 0.1}, {3, 4}};
  for i = 1:numel(options)
    check_error('online_psp:badOption', @() make(2, 5, options{i}{:}));
  end
end

function bad_samples(make, seen)
  X = spiked_covariance(30, 8, 3, 'seed', 2);
  model = make(3, 8);
  model.fit_block(X(1:seen, :));
  U = model.get_components();
  bad = {NaN, Inf, -Inf, 1e200};
  for i = 1:numel(bad)
    Z = X(1:5, :);
    Z(4, 2) = bad{i};
    check_error('online_psp:badInput', @() model.fit_block(Z));
    check_error('online_psp:badInput', @() model.fit_next(Z(4, :).'));
  end
  kinds = {'12345678', {1, 2}, struct('a', 1), complex(ones(1, 8), 1)};
  for i = 1:numel(kinds)
    check_error('online_psp:badInput', @() model.fit_block(kinds{i}));
    check_error('online_psp:badInput', @() model.fit_next(kinds{i}));
  end
  check_error('online_psp:badShape', @() model.fit_next(ones(7, 1)));
  check_error('online_psp:badShape', @() model.fit_next(ones(8, 2)));
  check_error('online_psp:badShape', @() model.fit_next([]));
  check_error('online_psp:badShape', @() model.fit_block(ones(8, 4)));
  check_error('online_psp:badShape', @() model.fit_block(ones(2, 8, 2)));
  check(model.t == seen && isequal(U, model.get_components()), 'an error changed the model');
end

function bad_step(make)
  X = spiked_covariance(30, 8, 3, 'seed', 2);
  wrong = {1, -0.1, NaN, [0.1 0.2], 'a', 1i};
  for i = 1:numel(wrong)
    model = make(3, 8, 'learning_rate', @(t) rate_until(t, 20, wrong{i}));
    model.fit_block(X(1:19, :));
    U = model.get_components();
    check_error('online_psp:badOption', @() model.fit_block(X(20:30, :)));
    check_error('online_psp:badOption', @() model.fit_next(X(20, :).'));
    check(model.t == 19 && isequal(U, model.get_components()), 'an error changed the model');
    model = make(3, 8, 'learning_rate', @(t) rate_until(t, 2, wrong{i}));
    model.fit_next(X(1, :).');
    model.fit_next(X(2, :).');
    check_error('online_psp:badOption', @() model.fit_next(X(3, :).'));
    check(model.t == 2, 'an error changed the model');
  end
end

function alpha = rate_until(t, last, wrong)
  alpha = 1 / (t + 1);
  if t >= last
    alpha = wrong;
  end
end

function bad_components_option(make)
  model = make(3, 8);
  check_error('online_psp:badOption', @() model.get_components('cooked'));
  check_error('online_psp:badOption', @() model.get_components('orthogonalise', true));
end

function bad_fsm_start()
  check_error('online_psp:badOption', @() FSM(2, 5, 'gamma', 0));
  check_error('online_psp:badOption', @() FSM(2, 5, 'gamma', 'a'));
  check_error('online_psp:badOption', @() FSM(2, 5, 'beta', 0.1));
  check_error('online_psp:badOption', @() FSM(2, 5, 'ell', 2));
  check_error('online_psp:badShape', @() FSM(2, 5, 'W0', ones(5, 2)));
  check_error('online_psp:badOption', @() FSM(2, 5, 'W0', NaN(2, 5)));
  check_error('online_psp:badOption', @() FSM(2, 5, 'W0', 'abc'));
  check_error('online_psp:badShape', @() FSM(2, 5, 'Minv0', eye(3)));
  check_error('online_psp:badOption', @() FSM(2, 5, 'Minv0', -eye(2)));
  fsm = FSM(2, 5);
  check_error('online_psp:notStarted', @() fsm.W);
end

function bad_frame_start()
  for name = {'IPCA', 'CCIPCA'}
    make = @(varargin) feval(name{1}, varargin{:});
    check_error('online_psp:badShape', @() make(2, 5, 'Uhat0', ones(2, 5)));
    check_error('online_psp:badOption', @() make(2, 5, 'Uhat0', Inf(5, 2)));
    check_error('online_psp:badShape', @() make(2, 5, 'sigma2_0', [1 2 3]));
    check_error('online_psp:badOption', @() make(2, 5, 'sigma2_0', [1 -2]));
    check_error('online_psp:badOption', @() make(2, 5, 'gamma', 2));
  end
  check_error('online_psp:badOption', @() CCIPCA(2, 5, 'ell', -1));
  check_error('online_psp:badOption', @() CCIPCA(2, 5, 'Uhat0', [ones(5, 1), zeros(5, 1)]));
end

function not_direct()
  model = StreamingAlgorithm(2, 5, struct('learning_rate', [], 'block_size', 'auto'), @(t) 1 ./ (t + 1));
  model.fit_next(ones(5, 1));
  check_error('online_psp:notImplemented', @() model.fit_next(ones(5, 1)));
end
