function X = spd_inverse(M)
% spd_inverse  Inverse of a symmetric matrix that is positive definite up to rounding; exactly symmetric.
  [R, failed] = chol(M);
  if failed
    [V, values] = eig((M + M.') / 2);
    values = diag(values);
    values = max(values, eps * max(values));
    X = (V ./ values.') * V.';
  else
    X = R \ eye(size(M));
    X = X * X.';
  end
  X = (X + X.') / 2;
end
