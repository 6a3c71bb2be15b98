function [Z, sigma2, Y] = ccipca_recur(Z, sigma2, C, alphas)
% ccipca_recur  CCIPCA over n samples given by coordinates in an orthonormal frame.
%   Z: m-by-K components, sigma2: K-by-1;  C: m-by-n samples;  alphas: 1-by-n
%   Y: K-by-n outputs
%
%   Component k meets sample s after component k-1 has met it and after k has met sample s-1.
%   So all pairs with the same k + s are independent and go together, as one "wave" of columns:
%   n + K - 1 steps on matrices in place of n K on vectors, with the same results.
  if size(C, 2) == 1
    [Z, sigma2, Y] = one_sample(Z, sigma2, C, alphas);
  else
    [Z, sigma2, Y] = waves(Z, sigma2, C, alphas);
  end
  Z = Z ./ sqrt(sum(Z .^ 2, 1)); % unit length but for rounding
end

function [Z, sigma2, Y] = waves(Z, sigma2, C, alphas)
  K = size(Z, 2);
  n = size(C, 2);
  X = fliplr(C); % so that the samples of a wave stand in the order of its components
  keep = fliplr(1 - alphas);
  learn = fliplr(alphas);
  sigma2 = sigma2.';
  Yf = zeros(K, n);
  for wave = 1:n+K-1
    k = max(1, wave - n + 1) : min(K, wave); % components
    s = k + (n - wave);                      % samples, counted from the last
    U = Z(:, k);
    x = X(:, s);
    along = dot(U, x, 1);
    square = dot(x, x, 1);
    % With u a unit vector, |v| and u'x after the update follow from u'x and x'x before it.
    old = keep(s) .* sigma2(k);
    new = learn(s) .* along;
    size_of_v = sqrt(old .^ 2 + 2 * old .* new .* along + new .^ 2 .* square);
    sigma2(k) = size_of_v;
    stay = size_of_v == 0; % no variance and nothing to learn: the component stays
    if any(stay)
      size_of_v(stay) = 1;
      old(stay) = 1;
    end
    old = old ./ size_of_v;
    new = new ./ size_of_v;
    y = old .* along + new .* square;
    U = U .* old + x .* new;
    Z(:, k) = U;
    X(:, s) = x - U .* y;
    Yf(k + (s - 1) * K) = y;
  end
  Y = fliplr(Yf);
  sigma2 = sigma2.';
end

function [Z, sigma2, y] = one_sample(Z, sigma2, x, alpha)
% The same for n = 1, where a wave is one component.
  K = size(Z, 2);
  y = zeros(K, 1);
  old = (1 - alpha) * sigma2;
  for k = 1:K
    u = Z(:, k);
    along = u.' * x;
    square = x.' * x;
    new = alpha * along;
    size_of_v = sqrt(old(k) ^ 2 + (2 * old(k) * along + new * square) * new);
    sigma2(k) = size_of_v;
    if size_of_v == 0
      coefficient = along;
    else
      u = (old(k) / size_of_v) * u + (new / size_of_v) * x;
      coefficient = (old(k) * along + new * square) / size_of_v;
      Z(:, k) = u;
    end
    x = x - coefficient * u;
    y(k) = coefficient;
  end
end
