function X = check_samples(X, D)
% check_samples  n-by-D samples as rows, in double; D = [] for any number of features.
  if ~(isnumeric(X) || islogical(X)) || ~isreal(X)
    error('online_psp:badInput', 'Samples must be real numbers; got %s.', kind(X));
  end
  if ndims(X) ~= 2
    error('online_psp:badShape', 'Samples must be the rows of a matrix; got %s.', size_text(X));
  end
  if ~isempty(D) && size(X, 2) ~= D
    error('online_psp:badShape', 'Samples must have %d features; got %s.', D, size_text(X));
  end
  if isempty(D) && size(X, 2) == 0
    error('online_psp:badShape', 'Samples must have at least one feature; got %s.', size_text(X));
  end
  X = double(full(X));
  squares = dot(X, X, 2);
  if ~all(isfinite(squares))
    row = find(~isfinite(squares), 1);
    column = find(~isfinite(X(row, :)), 1);
    if isempty(column)
      error('online_psp:badInput', 'Row %d has values too large: their squares overflow.', row);
    end
    error('online_psp:badInput', 'Row %d has %g in column %d; every value must be finite.', row, X(row, column), column);
  end
end

function text = kind(X)
  text = class(X);
  if isnumeric(X)
    text = ['complex ' text];
  end
end
