function scale = whitening_scale(model)
% whitening_scale  1-by-K, the standard deviation along each component, never zero.
  scale = sqrt(max(model.explained_variance, eps)).';
end
