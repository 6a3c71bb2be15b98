function [X, center, scale] = standardize_data(X)
% standardize_data  Subtract the mean and divide by the mean norm of a centred sample.
%
%   [X, center, scale] = standardize_data(X)   X: n-by-D, samples as rows
%
%   center: 1-by-D;  scale: a number, 1 where all samples are equal. The result is
%   (X - center)/scale. This is the offline standardisation of the published experiments.
%
%   Example
%     [Z, center, scale] = standardize_data([1 2; 3 4; 5 9]);
%
%   See also spiked_covariance, FSM
  X = check_samples(X, []);
  if isempty(X)
    error('online_psp:badShape', 'At least one sample is needed; got %s.', size_text(X));
  end
  center = mean(X, 1);
  X = X - center;
  scale = mean(sqrt(sum(X .^ 2, 2)));
  if scale == 0
    scale = 1;
  end
  X = X / scale;
end
