function options = parse_options(defaults, pairs)
% parse_options  Name-value pairs over a struct of defaults.
%   options = parse_options(struct('gamma', 2), varargin)
%   An unknown name, or a name without a value, is an online_psp:badOption error.
  options = defaults;
  known = fieldnames(defaults);
  if mod(numel(pairs), 2) ~= 0
    error('online_psp:badOption', 'Options come as pairs of a name and a value.');
  end
  for i = 1:2:numel(pairs)
    name = pairs{i};
    if ~ischar(name) && ~isa(name, 'string')
      error('online_psp:badOption', 'The name of an option must be text; got %s.', class(name));
    end
    at = find(strcmpi(char(name), known));
    if isempty(at)
      error('online_psp:badOption', 'There is no option ''%s''; there are: %s.', char(name), strjoin(known.', ', '));
    end
    options.(known{at}) = pairs{i + 1};
  end
end
