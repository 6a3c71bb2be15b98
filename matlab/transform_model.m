function Z = transform_model(model, X)
% transform_model  Project samples onto the components of a model.
%
%   Z = transform_model(model, X)   X: n-by-D, samples as rows;  Z: n-by-K
%
%   Z = (X - mean) components', each column divided by the square root of its variance where
%   model.whiten is true.
%
%   Example
%     model = load_model('model.mat');
%     Z = transform_model(model, X);
%
%   See also load_model, inverse_transform_model
  model = check_model(model);
  X = check_samples(X, numel(model.mean));
  Z = (X - model.mean) * model.components.';
  if model.whiten
    Z = Z ./ whitening_scale(model);
  end
end
