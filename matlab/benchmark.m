function results = benchmark(D, K, n)
% benchmark  fit_block and fit_next against the equations taken literally, one sample at a time.
%
%   benchmark()            D = 2048, K = 64, 512 samples
%   benchmark(D, K, n)
%   results = benchmark(D, K, n)   a struct array: name, literal, fit_next, fit_block (seconds a sample), error
%
%   Prints microseconds a sample and the ratio to the literal loop, all in one session, the best of
%   three runs each, after a warm-up. `error` is the subspace error between fit_block and the literal loop.
%
%   The ratio needs a fast BLAS (on Debian: libopenblas0); `version -blas` tells which one Octave has.
%
%   From a shell:  octave-cli --eval "cd matlab; benchmark"
%
%   See also FSM, IPCA, CCIPCA
  if nargin < 1, D = 2048; end
  if nargin < 2, K = 64; end
  if nargin < 3, n = 512; end
  RUNS = 3;
  X = spiked_covariance(K + n, D, K, 'seed', 1);
  [Q, ~] = qr(X(1:K, :).', 0);
  X = X(K+1:end, :);
  % Each with a start, so that the timed calls do nothing else than learn. CCIPCA with small steps from
  % variances of the right size: from the published start, at this K, it amplifies rounding (a change of
  % 1e-15 in the data moves the literal loop itself by 0.07), and `error` would say nothing.
  algorithms = {
    'FSM',    @() FSM(K, D, 'W0', Q.' / 100), @literal_fsm
    'IPCA',   @() IPCA(K, D, 'Uhat0', Q),     @literal_ipca
    'CCIPCA', @() CCIPCA(K, D, 'Uhat0', Q, 'sigma2_0', ones(K, 1), 'learning_rate', @(t) 1 / (t + K)), @literal_ccipca
  };
  results = struct('name', algorithms(:, 1), 'literal', Inf, 'fit_next', Inf, 'fit_block', Inf, 'error', 0);
  fprintf('D = %d, K = %d, %d samples; microseconds a sample (ratio to the literal loop)\n', D, K, n);
  fprintf('%-8s %10s %18s %18s %12s\n', '', 'literal', 'fit_next', 'fit_block', 'error');
  for i = 1:size(algorithms, 1)
    [name, start, literal] = algorithms{i, :};
    literal(Q, X(1:8, :));
    one_by_one(start(), X(1:8, :));
    for run = 1:RUNS
      tic; U = literal(Q, X); results(i).literal = min(results(i).literal, toc / n);
      model = start();
      tic; one_by_one(model, X); results(i).fit_next = min(results(i).fit_next, toc / n);
      model = start();
      tic; model.fit_block(X); results(i).fit_block = min(results(i).fit_block, toc / n);
    end
    results(i).error = subspace_error(model.get_components(), U);
    r = results(i);
    fprintf('%-8s %10.1f %10.1f (%4.1fx) %10.1f (%4.1fx) %12.1e\n', name, r.literal * 1e6, r.fit_next * 1e6, r.literal / r.fit_next, ...
      r.fit_block * 1e6, r.literal / r.fit_block, r.error);
  end
end

function one_by_one(model, X)
  for x = X.'
    model.fit_next(x);
  end
end

function U = literal_fsm(Q, X)
  W = Q.' / 100;
  Minv = 100 * eye(size(Q, 2));
  t = 0;
  for x = X.'
    t = t + 1;
    alpha = 2 / (2 * t + 5);
    y = Minv * (W * x);
    W = (1 - alpha) * W + (alpha * y) * x.';
    Minv = Minv / (1 - alpha);
    z = Minv * y;
    Minv = Minv - (alpha / (1 + alpha * (z.' * y)) * z) * z.';
  end
  U = (Minv * W).';
end

function U = literal_ipca(U, X)
  K = size(U, 2);
  sigma2 = zeros(K, 1);
  t = 0;
  for x = X.'
    t = t + 1;
    alpha = 1 / (t + 1);
    y = U.' * x;
    r = x - U * y;
    left = norm(r);
    v = [y; left];
    [V, L] = eig((1 - alpha) * diag([sigma2; 0]) + alpha * (v * v.'));
    [L, order] = sort(diag(L), 'descend');
    sigma2 = L(1:K);
    U = [U, r / left] * V(:, order(1:K));
  end
end

function U = literal_ccipca(U, X)
  sigma2 = ones(size(U, 2), 1);
  t = 0;
  for x = X.'
    t = t + 1;
    alpha = 1 / (t + size(U, 2));
    for k = 1:size(U, 2)
      u = U(:, k);
      v = ((1 - alpha) * sigma2(k)) * u + (alpha * (x.' * u)) * x;
      sigma2(k) = norm(v);
      u = v / sigma2(k);
      U(:, k) = u;
      x = x - (u.' * x) * u; %#ok<FXSET>
    end
  end
end
