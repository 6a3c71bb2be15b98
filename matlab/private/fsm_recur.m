function [a, w, Y, Minv] = fsm_recur(P, G, alphas, betas, Minv)
% fsm_recur  FSM over a block of n samples, on small arrays only.
%
%   P: K-by-n, W x_s at the start of the block;  G: n-by-n, products between samples
%   alphas, betas: 1-by-n;  Minv: K-by-K
%   a, w: the weights have become a W + sum_j w_j y_j x_j';  w: n-by-1
%   Y: K-by-n, outputs
%
%   Before sample s the weights are a_s W + sum_{j<s} w_js y_j x_j' with w_js = alpha_j times the
%   (1 - alpha) of the samples in between, so W x_s = a_s P_s + sum_j w_js G_js y_j. For a chunk
%   of samples Minv is held as f (N - sum_i k_i z_i z_i') with N fixed, and the rank-one terms
%   are added to N at once.
  CHUNK = 32;
  [K, n] = size(P);
  fade = [1, cumprod(1 - alphas)];
  between = ones(n, n + 1);
  later = triu(true(n, n + 1), 2); % (j, s) with s > j + 1
  faded = repmat([1, 1 - alphas], n, 1);
  between(later) = faded(later);
  weights = cumprod(between, 2) .* alphas.';
  H = P .* fade(1:n);
  T = triu(weights(:, 1:n) .* G, 1);
  Y = zeros(K, n);
  for first = 1:CHUNK:n
    chunk = first:min(first + CHUNK - 1, n);
    N = Minv;
    Z = zeros(K, numel(chunk));
    kZ = Z;
    f = 1;
    for s = chunk
      beta = betas(s);
      h = H(:, s) + Y * T(:, s);
      y = f * (N * h - kZ * (Z.' * h));
      f = f / (1 - beta);
      z = f * (N * y - kZ * (Z.' * y));
      i = s - first + 1;
      Z(:, i) = z;
      kZ(:, i) = (beta / ((1 + beta * (z.' * y)) * f)) * z;
      Y(:, s) = y;
    end
    Minv = f * (N - kZ * Z.');
  end
  a = fade(n + 1);
  w = weights(:, n + 1);
end
