function Q = orthonormal(U)
% orthonormal  The orthonormal basis of the columns of U, each on the side of the column it comes from.
  [Q, R] = qr(U, 0);
  signs = ones(1, size(Q, 2));
  signs(diag(R) < 0) = -1;
  Q = Q .* signs;
end
