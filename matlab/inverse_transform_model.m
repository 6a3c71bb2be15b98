function X = inverse_transform_model(model, Z)
% inverse_transform_model  Samples from their projections onto the components of a model.
%
%   X = inverse_transform_model(model, Z)   Z: n-by-K, as rows;  X: n-by-D
%
%   Example
%     model = load_model('model.mat');
%     approximation = inverse_transform_model(model, transform_model(model, X));
%
%   See also load_model, transform_model
  model = check_model(model);
  Z = check_samples(Z, size(model.components, 1));
  if model.whiten
    Z = Z .* whitening_scale(model);
  end
  X = Z * model.components + model.mean;
end
