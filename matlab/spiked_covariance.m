function [X, U, variances] = spiked_covariance(n, D, K, varargin)
% spiked_covariance  Synthetic samples: a K-dimensional signal in D-dimensional white noise.
%
%   [X, U, variances] = spiked_covariance(n, D, K)
%   [X, U, variances] = spiked_covariance(n, D, K, 'rho', 0.01, 'seed', 1)
%
%   X: n-by-D, samples as rows;  U: D-by-K, the true components, orthonormal;
%   variances: K-by-1, of the signal along them, 1 - (k-1)/(2(K-1)).
%
%   x = U diag(sqrt(variances)) z + sqrt(rho) w with z and w standard normal.
%
%   Options (default):
%     'rho' (0.01)   variance of the noise in every direction
%     'seed' ([])    a whole number >= 0 gives the same samples every time, and leaves the state
%                    of the random generator as it was
%
%   Example
%     [X, U] = spiked_covariance(1000, 50, 3, 'seed', 1);
%     ipca = IPCA(3, 50);
%     ipca.fit_block(X);
%     subspace_error(ipca.get_components(), U)
%
%   See also subspace_error, standardize_data, FSM
  options = parse_options(struct('rho', 0.01, 'seed', []), varargin);
  n = check_count(n, 'n');
  D = check_count(D, 'D');
  K = check_count(K, 'K');
  if K > D
    error('online_psp:badOption', 'K must not be larger than D; got K=%d and D=%d.', K, D);
  end
  rho = check_number(options.rho, 'rho', @(r) r >= 0, 'that is not negative');
  if ~isempty(options.seed)
    seed = check_number(options.seed, 'seed', @(s) s >= 0 && s == floor(s), 'that is whole and not negative');
    before = rng();
    restore = onCleanup(@() rng(before));
    rng(seed);
  end
  U = orthonormal(randn(D, K));
  variances = 1 - (0:K-1).' / (2 * max(K - 1, 1));
  X = (randn(n, K) .* sqrt(variances).') * U.' + sqrt(rho) * randn(n, D);
end
