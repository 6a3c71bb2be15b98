classdef StreamingAlgorithm < handle
% StreamingAlgorithm  What FSM, IPCA and CCIPCA share.
%
%   Not made directly: make an FSM, an IPCA or a CCIPCA. All of them have
%
%     y = obj.fit_next(x)          learn from one sample;  x: D-by-1, y: K-by-1
%     Y = obj.fit_block(X)         learn from n samples, as ROWS;  X: n-by-D, Y: n-by-K
%     U = obj.get_components()     D-by-K, orthonormal columns
%     U = obj.get_components('orthogonalize', false)   the raw basis; 'raw' for short
%     [U, v] = obj.principal_components()   ordered components and their variances
%
%   and the properties K, D, t (samples seen), learning_rate, block_size.
%
%   fit_block gives the iterates of n calls of fit_next: it is not mini-batching. It
%   compresses a block of samples into small matrices, runs the algorithm on those,
%   sample by sample, and expands the result, so that all work of length D is matrix
%   products.
%
%   Until K samples have come they are kept as they are, and the answers are exact for
%   them. The K-th starts the algorithm from the QR basis of the first K, and all K of
%   them are then fed.
%
%   Objects are handles: b = a is the same model, not a copy.
%
%   Errors leave the model as it was: online_psp:badInput (not real numbers, or not
%   finite), online_psp:badShape, online_psp:badOption, online_psp:notStarted.
%
%   See also FSM, IPCA, CCIPCA

  properties (SetAccess = protected)
    K                   % dimension of the subspace
    D = []              % number of features
    t = 0               % samples seen
    learning_rate = []  % function handle t -> alpha_t, or [] for the default
    block_size = 'auto' % samples compressed at a time; changes speed, not results
  end

  properties (Access = protected)
    kept = []       % D-by-t, the first samples, until there are K of them
    started = false
    schedule        % function handle: times -> step sizes, a column for each time
  end

  methods
    function obj = StreamingAlgorithm(K, D, options, default_rate)
      % options: a struct with learning_rate and block_size;  default_rate: t -> alpha_t.
      obj.K = check_count(K, 'K');
      if ~isempty(D)
        obj.set_features(check_count(D, 'D'), 'online_psp:badOption');
      end
      obj.learning_rate = options.learning_rate;
      obj.schedule = step_sizes(options.learning_rate, default_rate, 'learning_rate');
      if ~(ischar(options.block_size) && strcmp(options.block_size, 'auto'))
        options.block_size = check_count(options.block_size, 'block_size');
      end
      obj.block_size = options.block_size;
    end

    function y = fit_next(obj, x)
      % fit_next  Learn from one sample.
      %   y = obj.fit_next(x)   x: D-by-1 (a row is taken as well);  y: K-by-1, its projection
      if ~(isa(x, 'double') && isequal(size(x), [obj.D, 1]) && isreal(x) && isfinite(x.' * x)) || issparse(x)
        if ~isvector(x) && ~isempty(x)
          error('online_psp:badShape', 'fit_next takes one sample, a vector; got %s. For rows of samples use fit_block.', size_text(x));
        end
        x = check_samples(x(:).', obj.D).';
      end
      if ~obj.started
        y = obj.start_with(x);
        return
      end
      t = obj.t + 1; %#ok<*PROP>
      y = obj.take_next(x, obj.schedule(t));
      obj.t = t;
    end

    function Y = fit_block(obj, X)
      % fit_block  Learn from n samples; the iterates are those of n calls of fit_next.
      %   Y = obj.fit_block(X)   X: n-by-D, samples as rows;  Y: n-by-K
      X = check_samples(X, obj.D);
      n = size(X, 1);
      rates = obj.schedule(obj.t + (1:n));
      Y = zeros(n, obj.K);
      done = 0;
      if ~obj.started && n > 0
        done = min(n, obj.K - obj.t);
        Y(1:done, :) = obj.start_with(X(1:done, :).').';
      end
      if done < n
        obj.flush();
        while done < n
          last = obj.cut(done + 1, n, rates);
          Y(done+1:last, :) = obj.take_block(X(done+1:last, :), rates(:, done+1:last));
          obj.t = obj.t + last - done;
          done = last;
        end
      end
    end

    function U = get_components(obj, varargin)
      % get_components  The basis found so far.
      %   U = obj.get_components()                        D-by-K, orthonormal columns
      %   U = obj.get_components('orthogonalize', false)  D-by-K, as the algorithm keeps it
      %   U = obj.get_components('raw')                   the same
      %
      %   Before K samples have come, the first columns span those that have.
      if numel(varargin) == 1 && ischar(varargin{1}) && strcmp(varargin{1}, 'raw')
        varargin = {'orthogonalize', false};
      end
      options = parse_options(struct('orthogonalize', true), varargin);
      if ~obj.started
        if isempty(obj.D)
          error('online_psp:notStarted', 'There is no basis yet: the number of features is not known before the first sample.');
        end
        U = obj.basis_of_kept();
        return
      end
      obj.flush();
      U = obj.raw_basis();
      if options.orthogonalize
        U = orthonormal(U);
      end
    end

    function [U, variances] = principal_components(obj)
      % principal_components  Orthonormal components, largest variance first, and the variances.
      %   [U, v] = obj.principal_components()   U: D-by-K, v: K-by-1
      obj.require_start('principal components');
      U = obj.get_components();
      variances = obj.component_variances();
    end
  end

  methods (Access = protected) % what an algorithm provides
    function begin(obj, Q) %#ok<*INUSD>
      % Start from Q, D-by-K with orthonormal columns.
      obj.missing('begin');
    end

    function Y = take_block(obj, X, rates) %#ok<*STOUT>
      % Learn from n samples as rows, with the open block flushed before.
      obj.missing('take_block');
    end

    function y = take_next(obj, x, rates)
      % Learn from one sample by way of the open block.
      obj.missing('take_next');
    end

    function flush(obj)
      % Bring the basis up to date with the open block.
      obj.missing('flush');
    end

    function B = raw_basis(obj)
      % D-by-K columns that span the subspace, largest variance first where there is an order.
      obj.missing('raw_basis');
    end

    function v = component_variances(obj)
      % K-by-1, for the columns of get_components.
      obj.missing('component_variances');
    end
  end

  methods (Access = protected)
    function last = cut(obj, first, n, rates)
      % Where the block that begins at row `first` ends.
      last = min(n, first + obj.block_rows() - 1);
    end

    function n = block_rows(obj)
      % A longer block means fewer passes over the basis, but more work between its samples.
      if ischar(obj.block_size)
        n = min(max(2 ^ round(log2(sqrt(160 * obj.K))), 64), 512);
      else
        n = obj.block_size;
      end
    end

    function n = open_rows(obj)
      % How many samples fit_next gathers before the basis moves.
      if ischar(obj.block_size)
        n = min(max(2 ^ round(log2(sqrt(4 * obj.K))), 8), 64);
      else
        n = obj.block_size;
      end
    end

    function require_start(obj, what)
      if ~obj.started
        error('online_psp:notStarted', 'There are no %s before K=%d samples have been seen; so far there are %d.', what, obj.K, obj.t);
      end
    end
  end

  methods (Access = private)
    function set_features(obj, D, identifier)
      if isempty(obj.D)
        if obj.K > D
          error(identifier, 'K must not be larger than D; got K=%d and D=%d.', obj.K, D);
        end
        obj.D = D;
      end
    end

    function Y = start_with(obj, X)
      % Keep samples (columns of X) until there are K of them, then start. An output before
      % the start holds the coordinates in the QR basis of the samples so far.
      n = size(X, 2);
      complete = obj.t + n == obj.K;
      if complete
        rates = obj.schedule(1:obj.K);
      end
      obj.set_features(size(X, 1), 'online_psp:badShape');
      obj.kept = [obj.kept, X];
      obj.t = obj.t + n;
      [~, R] = qr(obj.kept, 0);
      Y = zeros(obj.K, n);
      Y(1:size(R, 1), :) = R(:, end-n+1:end);
      if complete
        X = obj.kept.';
        obj.begin(obj.basis_of_kept());
        obj.kept = [];
        obj.started = true;
        done = 0;
        while done < obj.K
          last = obj.cut(done + 1, obj.K, rates);
          fed = obj.take_block(X(done+1:last, :), rates(:, done+1:last));
          done = last;
        end
        Y(:, end) = fed(end, :).';
      end
    end

    function Q = basis_of_kept(obj)
      padded = zeros(obj.D, obj.K);
      padded(:, 1:size(obj.kept, 2)) = obj.kept;
      [Q, ~] = qr(padded, 0);
    end

    function missing(obj, name)
      error('online_psp:notImplemented', '%s has no method %s.', class(obj), name);
    end
  end
end
