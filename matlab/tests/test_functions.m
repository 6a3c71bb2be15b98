function tests = test_functions()
% test_functions  subspace_error, standardize_data, spiked_covariance.
  tests = {
    'subspace_error: known values', @known_errors
    'subspace_error: right down to rounding', @tiny_errors
    'subspace_error: bad input', @bad_bases
    'standardize_data: centred, of unit mean norm', @standardized
    'standardize_data: bad input and constant data', @bad_standardized
    'spiked_covariance: sizes, seed and covariance', @spiked
    'spiked_covariance: bad input', @bad_spiked
  };
end

function known_errors()
  check(subspace_error([1; 0], [0; 2]) == sqrt(2), 'orthogonal lines');
  check(abs(subspace_error([1; 0], [1; 1]) - 1) < 1e-15, 'lines at 45 degrees');
  check(subspace_error(eye(4, 2), [eye(2) * [2 1; 1 3]; zeros(2)]) < 1e-15, 'one plane, two bases');
end

function tiny_errors()
  angle = 1e-12;
  err = subspace_error([1; 0], [cos(angle); sin(angle)]);
  check(abs(err - sqrt(2) * angle) < 1e-15, 'got %g', err);
end

function bad_bases()
  check_error('online_psp:badInput', @() subspace_error(zeros(5, 2), eye(5, 2)));
  check_error('online_psp:badInput', @() subspace_error(eye(5, 2), ones(5, 2)));
  check_error('online_psp:badShape', @() subspace_error(ones(4, 2), ones(4, 3)));
  check_error('online_psp:badShape', @() subspace_error(ones(2, 4), ones(2, 4)));
  check_error('online_psp:badInput', @() subspace_error([1; NaN], [1; 1]));
  check_error('online_psp:badInput', @() subspace_error('ab', [1; 1]));
end

function standardized()
  X = spiked_covariance(200, 10, 2, 'seed', 1) * 5 + 3;
  [Z, center, scale] = standardize_data(X);
  check(norm(mean(Z, 1)) < 1e-12 && abs(mean(sqrt(sum(Z .^ 2, 2))) - 1) < 1e-12, 'not standardised');
  check(norm(Z * scale + center - X) < 1e-10, 'center and scale do not undo it');
end

function bad_standardized()
  check(isequal(standardize_data(ones(3, 2)), zeros(3, 2)), 'constant data');
  check_error('online_psp:badInput', @() standardize_data([1 NaN]));
  check_error('online_psp:badShape', @() standardize_data(zeros(0, 3)));
end

function spiked()
  [X, U, variances] = spiked_covariance(20000, 12, 3, 'rho', 0.1, 'seed', 4);
  check(isequal(size(X), [20000, 12]) && norm(U.' * U - eye(3)) < 1e-12, 'sizes');
  check(isequal(variances, [1; 0.75; 0.5]), 'variances');
  expected = U * diag(variances) * U.' + 0.1 * eye(12);
  check(norm(X.' * X / 20000 - expected) < 0.05, 'covariance');
  before = rng();
  again = spiked_covariance(20000, 12, 3, 'rho', 0.1, 'seed', 4);
  check(isequal(before, rng()), 'the state of the random generator moved');
  check(isequal(X, again), 'the seed does not give the same samples');
  check(~isequal(spiked_covariance(5, 4, 1), spiked_covariance(5, 4, 1)), 'without a seed samples must differ');
end

function bad_spiked()
  check_error('online_psp:badOption', @() spiked_covariance(10, 3, 4));
  check_error('online_psp:badOption', @() spiked_covariance(0, 3, 1));
  check_error('online_psp:badOption', @() spiked_covariance(10, 3, 1, 'rho', -1));
  check_error('online_psp:badOption', @() spiked_covariance(10, 3, 1, 'seed', 1.5));
end
