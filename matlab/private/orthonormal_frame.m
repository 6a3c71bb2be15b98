function [R, Q] = orthonormal_frame(S)
% orthonormal_frame  S = Q R with orthonormal columns in Q (D-by-m) and R upper triangular.
%   Q is returned empty where it need not be formed: R is then the Cholesky factor of S'S,
%   good while no column is nearly in the span of those before it, and whatever has the
%   coordinates Z is S (R \ Z). Otherwise Q and R come from Householder reflections.
  TRUST = 10 * sqrt(eps); % least squared pivot, relative to the column's square, that subtraction gets right
  Gram = S.' * S;
  [R, failed] = chol(Gram);
  Q = [];
  if failed || min(diag(R) .^ 2 ./ diag(Gram)) < TRUST
    [Q, R] = qr(S, 0);
  end
end
