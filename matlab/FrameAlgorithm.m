classdef FrameAlgorithm < StreamingAlgorithm
% FrameAlgorithm  What IPCA and CCIPCA share: components with a variance each, and a
%   recurrence in orthonormal coordinates.
%
%   Not made directly: make an IPCA or a CCIPCA. Over a block of samples the components stay
%   in the span of themselves and the samples. So an orthonormal frame of that span is found,
%   the algorithm runs on coordinates in it, of length K+n in place of D, and the components
%   are read back.
%
%   See also IPCA, CCIPCA, StreamingAlgorithm

  properties (Dependent, SetAccess = private)
    sigma2 % K-by-1 variances along the components, largest first
  end

  properties (Access = protected)
    % One struct, because Octave reads and writes the properties of an object slowly:
    %   U          D-by-K, components, as of the last flush
    %   variances  K-by-1, up to date
    % and the open block, what fit_next has taken since the last flush. The components are
    % frame * Z; where D is so small that there is nothing to compress, there is no open block.
    %   frame  D-by-(K+r), orthonormal columns, zero beyond the first K + count
    %   Z      (K+r)-by-K
    state
  end

  methods
    function obj = FrameAlgorithm(K, D, options, default_rate, default_sigma2)
      % options: a struct with learning_rate, block_size, Uhat0 and sigma2_0.
      if isempty(D) && ~isempty(options.Uhat0)
        D = size(options.Uhat0, 1);
      end
      obj@StreamingAlgorithm(K, D, options, default_rate);
      obj.state.count = 0;
      obj.state.variances = repmat(default_sigma2, obj.K, 1);
      if ~isempty(options.sigma2_0)
        if isvector(options.sigma2_0)
          options.sigma2_0 = options.sigma2_0(:);
        end
        obj.state.variances = check_start(options.sigma2_0, 'sigma2_0', [obj.K, 1]);
        if any(obj.state.variances < 0)
          error('online_psp:badOption', 'sigma2_0 must not be negative.');
        end
      end
      if ~isempty(options.Uhat0)
        obj.begin(obj.unit_columns(check_start(options.Uhat0, 'Uhat0', [obj.D, obj.K])));
        obj.started = true;
      end
    end

    function values = get.sigma2(obj)
      values = sort(obj.state.variances, 'descend');
    end
  end

  methods (Access = protected) % what an algorithm provides
    function U = unit_columns(obj, Uhat0) %#ok<*STOUT,*INUSD>
      % The user's start, with columns of unit length.
      error('online_psp:notImplemented', '%s has no method unit_columns.', class(obj));
    end

    function Z = start_coordinates(obj, R)
      % Coordinates of the components in the frame, from the triangular factor of [U X'].
      Z = R(:, 1:obj.K);
    end

    function [Z, variances, Y] = recur(obj, Z, variances, C, alphas)
      % The algorithm itself, for samples with coordinates C (m-by-n); Y: K-by-n.
      error('online_psp:notImplemented', '%s has no method recur.', class(obj));
    end
  end

  methods (Access = protected)
    function begin(obj, U)
      obj.state.U = U;
    end

    function Y = take_block(obj, X, alphas)
      s = obj.state;
      K = size(s.U, 2);
      if size(X, 2) <= K + size(X, 1)
        [s.U, s.variances, Y] = obj.recur(s.U, s.variances, X.', alphas);
      else
        stack = [s.U, X.'];
        [R, Q] = orthonormal_frame(stack);
        [Z, s.variances, Y] = obj.recur(obj.start_coordinates(R), s.variances, R(:, K+1:end), alphas);
        if isempty(Q)
          s.U = stack * (R \ Z);
        else
          s.U = Q * Z;
        end
      end
      obj.state = s;
      Y = Y.';
    end

    function y = take_next(obj, x, alpha)
      s = obj.state;
      [D, K] = size(s.U);
      if s.count == 0
        r = obj.open_rows();
        if D <= K + r
          [s.U, s.variances, y] = obj.recur(s.U, s.variances, x, alpha);
          obj.state = s;
          return
        end
        s = obj.opened(s, r);
      end
      s.count = s.count + 1;
      [c, direction] = coordinates(s.frame, x, K + s.count);
      [s.Z, s.variances, y] = obj.recur(s.Z, s.variances, c, alpha);
      obj.state = []; % so that the column is set in place, and not in a copy
      s.frame(:, K + s.count) = direction;
      obj.state = s;
      if s.count == size(s.Z, 1) - K
        obj.flush();
      end
    end

    function flush(obj)
      s = obj.state;
      if s.count > 0
        s.U = s.frame * s.Z;
        s.count = 0;
        obj.state = s;
      end
    end

    function B = raw_basis(obj)
      [~, order] = sort(-obj.state.variances);
      B = obj.state.U(:, order);
    end

    function v = component_variances(obj)
      v = obj.sigma2;
    end
  end

  methods (Access = private)
    function s = opened(obj, s, r)
      % An open block of r samples, as yet empty.
      [D, K] = size(s.U);
      [R, Q] = orthonormal_frame(s.U);
      if isempty(Q)
        Q = s.U / R;
      end
      s.frame = [Q, zeros(D, r)];
      s.Z = [obj.start_coordinates(R); zeros(r, K)];
    end
  end
end

function [c, direction] = coordinates(frame, x, at)
% Coordinates of x in the frame, which is to have `direction` as its column `at`: what is left of
% x outside the frame, in unit length, or zero where nothing is.
  c = frame.' * x;
  rest = x - frame * c;
  again = frame.' * rest; % once more: a small rest must still be orthogonal
  rest = rest - frame * again;
  c = c + again;
  left = norm(rest);
  if left > 4 * eps * norm(x)
    c(at) = left;
    direction = rest / left;
  else
    direction = zeros(size(x));
  end
end
