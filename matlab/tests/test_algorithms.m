function tests = test_algorithms()
% test_algorithms  What holds for every algorithm, whatever the vectors say.
  tests = cell(0, 2);
  for name = {'FSM', 'IPCA', 'CCIPCA'}
    make = @(varargin) feval(name{1}, varargin{:});
    tests = [tests; {
      [name{1} ': fit_block is repeated fit_next, in any mixture'], @() block_is_repeated_next(make)
      [name{1} ': fit_block is repeated fit_next, long blocks, large D'], @() long_blocks(make)
      [name{1} ': before K samples the basis spans them'], @() before_the_start(make)
      [name{1} ': D is learned from the first sample'], @() learns_features(make)
      [name{1} ': rows, integers, single, logical and sparse are taken'], @() kinds_of_input(make)
      [name{1} ': finds the subspace of spiked data'], @() finds_subspace(make)
      [name{1} ': variances of the principal components'], @() finds_variances(make)
      [name{1} ': zeros, constants and repeated samples stay finite'], @() degenerate_data(make)
      [name{1} ': very large steps stay finite'], @() large_steps(make)
      [name{1} ': an empty block changes nothing'], @() empty_block(make)
      [name{1} ': input is left alone, and the object is a handle'], @() is_a_handle(make)
      [name{1} ': raw basis spans the same subspace'], @() raw_basis(make)
      [name{1} ': help is there'], @() has_help(name{1})
    }]; %#ok<AGROW>
  end
  tests = [tests; {
    'FSM: W and Minv follow the equations', @fsm_state
    'CCIPCA: time advances once a sample', @ccipca_time
    'IPCA and CCIPCA: sigma2 is descending and not negative', @variances_in_order
  }];
end

function X = data(n, D, K)
  X = spiked_covariance(n, D, K, 'rho', 0.01, 'seed', 3);
end

function block_is_repeated_next(make)
  X = data(90, 60, 3);
  rate = {'learning_rate', @(t) 1 / (t + 3)};
  one = make(3, 60, rate{:});
  Y = zeros(90, 3);
  for t = 1:90
    Y(t, :) = one.fit_next(X(t, :).').';
  end
  all_at_once = make(3, 60, rate{:});
  same(Y, all_at_once.fit_block(X));
  mixed = make(3, 60, rate{:});
  Z = [mixed.fit_next(X(1, :).').'; mixed.fit_block(X(2:20, :)); mixed.fit_next(X(21, :).').'; mixed.fit_next(X(22, :).').'; ...
    mixed.fit_block(X(23:80, :)); mixed.fit_block(X(81:90, :))];
  same(Y, Z);
  check(one.t == 90 && all_at_once.t == 90 && mixed.t == 90, 't is wrong');
  check(subspace_error(one.get_components(), all_at_once.get_components()) < 1e-12, 'bases differ');
  check(subspace_error(one.get_components(), mixed.get_components()) < 1e-12, 'bases differ');
end

function same(Y, Z)
  check(isequal(size(Y), size(Z)), 'sizes differ');
  difference = norm(abs(Y) - abs(Z));
  check(difference < 1e-10, 'outputs differ by %g', difference);
end

function long_blocks(make)
  X = data(700, 900, 5);
  rate = {'learning_rate', @(t) 1 / (t + 5)};
  one = make(5, 900, rate{:});
  for x = X.'
    one.fit_next(x);
  end
  blocks = make(5, 900, 'block_size', 300, rate{:});
  blocks.fit_block(X);
  err = subspace_error(one.get_components(), blocks.get_components());
  check(err < 1e-11, 'subspace error %g', err);
end

function before_the_start(make)
  X = data(6, 20, 4);
  model = make(4, 20);
  U = model.get_components();
  check(norm(U.' * U - eye(4)) < 1e-12, 'not orthonormal before the first sample');
  for t = 1:3
    y = model.fit_next(X(t, :).');
    check(isequal(size(y), [4, 1]) && abs(norm(y) - norm(X(t, :))) < 1e-12, 'the output does not hold the whole sample');
    U = model.get_components();
    check(norm(U.' * U - eye(4)) < 1e-12, 'not orthonormal');
    kept = X(1:t, :).';
    check(norm(kept - U(:, 1:t) * (U(:, 1:t).' * kept)) < 1e-12, 'the samples are not in the span');
  end
  check_error('online_psp:notStarted', @() model.principal_components());
end

function learns_features(make)
  model = make(2, []);
  check_error('online_psp:notStarted', @() model.get_components());
  check_error('online_psp:badShape', @() model.fit_next(1));
  check(isempty(model.D) && model.t == 0, 'an error changed the model');
  model.fit_block(data(10, 7, 2));
  check(model.D == 7 && isequal(size(model.get_components()), [7, 2]), 'D was not learned');
end

function kinds_of_input(make)
  X = round(10 * data(30, 12, 2));
  expected = make(2, 12);
  expected.fit_block(X);
  kinds = {@int16, @single, @sparse};
  for i = 1:numel(kinds)
    model = make(2, 12);
    model.fit_block(kinds{i}(X(1:15, :)));
    for t = 16:30
      model.fit_next(kinds{i}(X(t, :)));
    end
    check(subspace_error(model.get_components(), expected.get_components()) < 1e-12, 'kind %d differs', i);
  end
  model = make(2, 12);
  model.fit_block(X > 0);
end

function finds_subspace(make)
  [X, U] = spiked_covariance(3000, 40, 3, 'rho', 0.01, 'seed', 5);
  model = make(3, 40);
  model.fit_block(X);
  err = subspace_error(model.get_components(), U);
  check(err < 0.05, 'subspace error %g', err);
end

function finds_variances(make)
  X = spiked_covariance(4000, 30, 3, 'rho', 0.001, 'seed', 6);
  model = make(3, 30);
  model.fit_block(X);
  [U, variances] = model.principal_components();
  check(norm(U.' * U - eye(3)) < 1e-12, 'not orthonormal');
  expected = sort(eig(X.' * X / size(X, 1)), 'descend');
  check(all(abs(variances - expected(1:3)) < 0.1 * expected(1:3)), 'variances are off');
end

function degenerate_data(make)
  cases = {zeros(40, 15), ones(40, 15), repmat([1:15; 15:-1:1], 20, 1), [zeros(10, 15); data(30, 15, 3)], 1e-6 * data(40, 15, 3), ...
    1e6 * data(40, 15, 3), [data(20, 15, 3); zeros(800, 15)]};
  for i = 1:numel(cases)
    blocks = make(3, 15);
    one = make(3, 15);
    check(all(all(isfinite(blocks.fit_block(cases{i})))), 'case %d: outputs are not finite', i);
    for x = cases{i}.'
      check(all(isfinite(one.fit_next(x))), 'case %d: an output is not finite', i);
    end
    for model = {blocks, one}
      U = model{1}.get_components();
      check(all(isfinite(U(:))) && norm(U.' * U - eye(3)) < 1e-12, 'case %d: not orthonormal', i);
    end
  end
end

function large_steps(make)
  X = data(400, 50, 3);
  model = make(3, 50, 'learning_rate', @(t) 0.99);
  model.fit_block(X);
  for x = X.'
    model.fit_next(x);
  end
  U = model.get_components();
  check(all(isfinite(U(:))) && norm(U.' * U - eye(3)) < 1e-12, 'not orthonormal');
end

function empty_block(make)
  model = make(3, 20);
  check(isequal(size(model.fit_block(zeros(0, 20))), [0, 3]), 'the size is wrong');
  model.fit_block(data(10, 20, 3));
  U = model.get_components();
  model.fit_block(zeros(0, 20));
  check(model.t == 10 && isequal(U, model.get_components()), 'the model changed');
end

function is_a_handle(make)
  X = data(30, 20, 3);
  before = X;
  a = make(3, 20);
  b = a;
  a.fit_block(X);
  check(isequal(X, before), 'the input changed');
  check(b.t == 30 && isa(a, 'handle'), 'not a handle');
end

function raw_basis(make)
  model = make(3, 20);
  model.fit_block(data(50, 20, 3));
  U = model.get_components();
  raw = model.get_components('orthogonalize', false);
  check(isequal(size(raw), [20, 3]) && isequal(raw, model.get_components('raw')), 'raw is not what orthogonalize=false gives');
  check(subspace_error(raw, U) < 1e-12, 'another subspace');
end

function has_help(name)
  text = help(name);
  check(~isempty(strfind(text, 'fit_block')) && ~isempty(strfind(text, 'Example')), 'the help of %s says too little', name); %#ok<STREMP>
end

function fsm_state()
  X = data(60, 25, 3);
  fsm = FSM(3, 25);
  Q = orth_of(X(1:3, :).');
  W = Q.' / 100;
  Minv = 100 * eye(3);
  for t = 1:60
    x = X(t, :).';
    fsm.fit_next(x);
    alpha = 2 / (2 * t + 5);
    y = Minv * (W * x);
    W = (1 - alpha) * W + alpha * y * x.';
    Minv = Minv / (1 - alpha);
    z = Minv * y;
    Minv = Minv - alpha / (1 + alpha * (z.' * y)) * (z * z.');
  end
  check(norm(abs(fsm.W) - abs(W)) < 1e-10 * norm(W), 'W differs');
  check(norm(abs(fsm.Minv) - abs(Minv)) < 1e-10 * norm(Minv), 'Minv differs');
end

function Q = orth_of(A)
  [Q, ~] = qr(A, 0);
end

function ccipca_time()
  seen = containers.Map('KeyType', 'double', 'ValueType', 'double');
  model = CCIPCA(4, 20, 'learning_rate', @(t) noted(seen, t));
  model.fit_block(data(50, 20, 4));
  check(model.t == 50 && isequal(cell2mat(keys(seen)), 1:50), 'the times asked for are not 1 .. 50');
end

function alpha = noted(seen, t)
  seen(t) = 1; %#ok<NASGU>
  alpha = 1 / (t + 1);
end

function variances_in_order()
  for name = {'IPCA', 'CCIPCA'}
    model = feval(name{1}, 4, 20);
    model.fit_block(data(80, 20, 4));
    values = model.sigma2;
    check(isequal(size(values), [4, 1]) && all(diff(values) <= 0) && all(values >= 0), '%s: sigma2 is wrong', name{1});
  end
end
