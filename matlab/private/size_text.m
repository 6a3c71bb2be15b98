function text = size_text(X)
% size_text  The size of X in words: '3-by-4'.
  text = strrep(sprintf('%d-by-', size(X)), ' ', '');
  text = text(1:end-4);
end
