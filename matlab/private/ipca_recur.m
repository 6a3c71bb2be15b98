function [Z, sigma2, Y] = ipca_recur(Z, sigma2, C, alphas)
% ipca_recur  IPCA over n samples given by coordinates in an orthonormal frame.
%   Z: m-by-K components, sigma2: K-by-1, largest first;  C: m-by-n samples;  alphas: 1-by-n
%   Y: K-by-n outputs
  NO_RESIDUAL = 1e-7;
  K = size(Z, 2);
  n = size(C, 2);
  Y = zeros(K, n);
  for s = 1:n
    alpha = alphas(s);
    x = C(:, s);
    y = Z.' * x;
    rest = x - Z * y;
    again = Z.' * rest; % once more: a small rest must still be orthogonal
    rest = rest - Z * again;
    y = y + again;
    Y(:, s) = y;
    left = norm(rest);
    if sqrt(alpha) * left > NO_RESIDUAL * norm(x)
      y = [y; left]; %#ok<AGROW>
      sigma2 = [sigma2; 0]; %#ok<AGROW>
      Z = [Z, rest / left]; %#ok<AGROW>
    end
    [V, values] = eig(diag((1 - alpha) * sigma2) + alpha * (y * y.'));
    [values, order] = sort(diag(values), 'descend');
    sigma2 = max(values(1:K), 0);
    Z = Z * V(:, order(1:K));
  end
end
