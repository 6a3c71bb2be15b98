function err = subspace_error(U, V)
% subspace_error  Distance between two subspaces, from 0 (equal) to sqrt(2) (orthogonal).
%
%   err = subspace_error(U, V)   U, V: D-by-K, each of full column rank
%
%   |P_U - P_V|_F / |P_V|_F = sqrt(2 - 2 |U'V|_F^2 / K) for orthonormal U and V, computed as
%   sqrt(2/K) |U - V (V'U)|_F: equal, and right down to 1e-15. Both are made orthonormal first.
%
%   Example
%     subspace_error([1; 0], [1; 1])
%
%   See also FSM, spiked_covariance
  if ~isnumeric(U) || ~isnumeric(V) || ~isreal(U) || ~isreal(V) || ~all(isfinite(U(:))) || ~all(isfinite(V(:)))
    error('online_psp:badInput', 'Bases must be finite real numbers.');
  end
  if ndims(U) ~= 2 || ~isequal(size(U), size(V)) || isempty(U) || size(U, 2) > size(U, 1)
    error('online_psp:badShape', 'Two bases of the same size, D-by-K with K <= D, are needed; got %s and %s.', size_text(U), size_text(V));
  end
  check_rank(double(U), 'first');
  check_rank(double(V), 'second');
  U = orthonormal(double(U));
  V = orthonormal(double(V));
  err = sqrt(2 / size(U, 2)) * norm(U - V * (V.' * U), 'fro');
end

function check_rank(U, name)
% check_rank  Columns that depend on each other are no basis: rounding would choose directions for them.
  sizes = sqrt(sum(U .^ 2, 1));
  sizes(sizes == 0) = 1;
  found = sum(svd(U ./ sizes) > size(U, 1) * eps);
  if found < size(U, 2)
    error('online_psp:badInput', 'The %d columns of the %s basis span only %d dimensions.', size(U, 2), name, found);
  end
end
