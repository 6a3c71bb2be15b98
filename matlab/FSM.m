classdef FSM < StreamingAlgorithm
% FSM  Fast Similarity Matching: the top-K principal subspace of a stream, O(DK) a sample.
%
%   fsm = FSM(K, D)                  D = [] learns the number of features from the first sample
%   fsm = FSM(K, D, name, value, ...)
%
%   Options (default):
%     'gamma' (2.0)           step size alpha_t = 2/(gamma t + 5); small values forget faster
%     'learning_rate' ([])    function handle t -> alpha_t in [0,1), t from 1, in place of gamma
%     'beta' ([])             function handle t -> beta_t, where M is to have a step size of its own
%     'W0' ([])               K-by-D start for the weights; [] starts from the first K samples
%     'Minv0' ([])            K-by-K start for the inverse of M, symmetric positive definite; 100 I
%     'block_size' ('auto')   samples compressed at a time: changes speed, not results
%
%   y = fsm.fit_next(x)         x: D-by-1;  y: K-by-1
%   Y = fsm.fit_block(X)        X: n-by-D, samples as rows;  Y: n-by-K
%   U = fsm.get_components()    D-by-K, orthonormal columns
%   [U, v] = fsm.principal_components()   ordered, with variances (from M, which tends to cov(y))
%   fsm.W, fsm.Minv, fsm.t      K-by-D, K-by-K, samples seen
%
%   For sample x_t (Giovannucci, Minden, Pehlevan, Chklovskii 2018):
%
%     y    = Minv W x_t
%     W    = (1 - alpha_t) W + alpha_t y x_t'
%     Minv = Minv / (1 - beta_t);  z = Minv y;  Minv = Minv - beta_t/(1 + beta_t z'y) z z'
%
%   from Minv = 100 I, W = Q'/100 with Q the QR basis of the first K samples. The rows of
%   Minv W span the subspace. Two departures, neither of which changes an iterate beyond
%   rounding: M is kept beside Minv, and Minv made anew from it every so often, because the
%   published recursion alone loses accuracy on long streams; and directions that no sample
%   excites are kept from vanishing.
%
%   Example
%     X = spiked_covariance(2000, 100, 4);
%     fsm = FSM(4, 100);
%     Y = fsm.fit_block(X);
%     U = fsm.get_components();
%
%   See also IPCA, CCIPCA, StreamingAlgorithm, subspace_error

  properties (SetAccess = private)
    gamma = 2.0
    beta = []
  end

  properties (Dependent, SetAccess = private)
    W    % K-by-D weights
    Minv % K-by-K inverse of the lateral weights
  end

  properties (Access = private)
    % One struct, because Octave reads and writes the properties of an object slowly:
    %   B      D-by-K, the weights transposed, as of the last flush
    %   M      K-by-K, lateral weights, as of the last flush
    %   Minv   K-by-K, their inverse, up to date
    %   since  samples since Minv was last made from M
    %   left   how much of M at that time is left in it
    % and the open block, what fit_next has taken since the last flush. The weights are
    % a W + sum_j w_j y_j x_j', and never divided by a.
    %   pending  D-by-r, the samples x_j; zero beyond the first `count`, as is all that follows
    %   a, w     a number, r-by-1
    %   faded    how much is left of W or M, whichever is less
    %   Y        K-by-r, outputs
    %   betas    1-by-r
    state
  end

  properties (Constant, Access = private)
    LEAST_LEFT = 1e-8 % of the weights that a block began with: beyond, Minv would be rounding
  end

  methods
    function obj = FSM(K, D, varargin)
      if nargin < 2
        D = [];
      end
      defaults = struct('gamma', 2.0, 'learning_rate', [], 'beta', [], 'W0', [], 'Minv0', [], 'block_size', 'auto');
      options = parse_options(defaults, varargin);
      if isempty(D) && ~isempty(options.W0)
        D = size(options.W0, 2);
      end
      gamma = check_number(options.gamma, 'gamma', @(g) g > 0, 'above 0');
      obj@StreamingAlgorithm(K, D, options, @(t) 2 ./ (gamma * t + 5));
      obj.gamma = gamma;
      obj.beta = options.beta;
      alphas = obj.schedule;
      betas = step_sizes(options.beta, alphas, 'beta');
      obj.schedule = @(t) [alphas(t); betas(t)];
      obj.state.M = eye(obj.K) / 100;
      if ~isempty(options.Minv0)
        obj.state.M = lateral_from(check_start(options.Minv0, 'Minv0', [obj.K, obj.K]));
      end
      if ~isempty(options.W0)
        obj.begin_from(check_start(options.W0, 'W0', [obj.K, obj.D]).');
        obj.started = true;
      end
    end

    function W = get.W(obj)
      obj.require_start('weights');
      obj.flush();
      W = obj.state.B.';
    end

    function Minv = get.Minv(obj)
      if obj.started
        Minv = obj.state.Minv;
      else
        Minv = spd_inverse(obj.state.M);
      end
    end

    function [U, variances] = principal_components(obj)
      % principal_components  Orthonormal components, largest variance first, and the variances.
      %   [U, v] = obj.principal_components()   U: D-by-K, v: K-by-1
      %
      %   With Minv W = L Q, Q orthonormal rows, the covariance inside the subspace is
      %   inv(L) M inv(L)'; its eigenvectors turn Q into principal components.
      obj.require_start('principal components');
      obj.flush();
      [Q, R] = qr(obj.raw_basis(), 0);
      inside = (R.' \ obj.state.M) / R;
      [V, values] = eig((inside + inside.') / 2);
      [variances, order] = sort(max(diag(values), 0), 'descend');
      U = Q * V(:, order);
    end
  end

  methods (Access = protected)
    function begin(obj, Q)
      obj.begin_from(Q / 100);
    end

    function last = cut(obj, first, n, rates)
      % A block also ends before the weights that it began with have all but faded.
      last = cut@StreamingAlgorithm(obj, first, n, rates);
      left = cumprod(1 - max(rates(:, first:last), [], 1));
      last = first + max(sum(left > obj.LEAST_LEFT), 1) - 1;
    end

    function Y = take_block(obj, X, rates)
      s = obj.state;
      [a, w, Y, s.Minv] = fsm_recur((X * s.B).', X * X.', rates(1, :), rates(2, :), s.Minv);
      s.B = a * s.B + X.' * (Y .* w.').';
      obj.state = settle(s, Y, rates(2, :));
      Y = Y.';
    end

    function y = take_next(obj, x, rates)
      alpha = rates(1);
      beta = rates(2); %#ok<*PROPLC>
      s = obj.state;
      y = s.Minv * (s.a * (s.B.' * x) + s.Y * (s.w .* (s.pending.' * x)));
      Minv = s.Minv / (1 - beta);
      z = Minv * y;
      s.Minv = Minv - z * (beta / (1 + beta * (z.' * y)) * z.');
      s.a = (1 - alpha) * s.a;
      s.faded = (1 - max(alpha, beta)) * s.faded;
      s.w = (1 - alpha) * s.w;
      n = s.count + 1;
      s.count = n;
      s.w(n) = alpha;
      s.Y(:, n) = y;
      s.betas(n) = beta;
      obj.state = []; % so that the column is set in place, and not in a copy
      s.pending(:, n) = x;
      obj.state = s;
      if n == numel(s.w) || s.faded < obj.LEAST_LEFT
        obj.flush();
      end
    end

    function flush(obj)
      s = obj.state;
      n = s.count;
      if n > 0
        s.B = s.a * s.B + s.pending * (s.Y .* s.w.').';
        s = settle(s, s.Y(:, 1:n), s.betas(1:n));
        obj.state = opened(s, numel(s.w));
      end
    end

    function B = raw_basis(obj)
      B = obj.state.B * spd_inverse(obj.state.M);
    end
  end

  methods (Access = private)
    function begin_from(obj, B)
      s = obj.state;
      s.B = B;
      obj.state = opened(restored(s), obj.open_rows());
    end
  end
end

function s = opened(s, r)
% An open block of r samples, as yet empty.
  [D, K] = size(s.B);
  s.pending = zeros(D, r);
  s.count = 0;
  s.a = 1;
  s.faded = 1;
  s.w = zeros(r, 1);
  s.Y = zeros(K, r);
  s.betas = zeros(1, r);
end

function s = settle(s, Y, betas)
% M after the outputs Y (K-by-n), one step for each in turn; and Minv made anew from it often
% enough that rounding cannot build up. M itself is only ever added to, so it does not drift.
  keep = fliplr(cumprod([1, fliplr(1 - betas)]));
  root = Y .* sqrt(betas .* keep(2:end));
  s.M = keep(1) * s.M + root * root.';
  s.since = s.since + numel(betas);
  s.left = s.left * keep(1);
  if trace(s.M) < 1e-150 % a long run of zeros shrinks M and W towards underflow
    s.M = s.M * 1e100;
    s.B = s.B * 1e100;
    s.Minv = s.Minv / 1e100;
  end
  K = size(s.M, 1);
  condition = trace(s.M) * trace(s.Minv);
  unexcited = ~(condition * eps ^ 0.75 < 1);
  if unexcited
    s = lift_unexcited(s);
  end
  if unexcited || s.left < 1e-4 || s.since >= max(256, 4 * K) || (condition > 1e6 && s.since >= K)
    s = restored(s);
  end
end

function s = restored(s)
% Minv made anew from M.
  s.Minv = spd_inverse(s.M);
  s.since = 0;
  s.left = 1;
end

function s = lift_unexcited(s)
% Along a direction that no sample excites, M and W shrink together, without end, while their
% ratio stays. Below a relative eps^(3/4) rounding in W x would be blown up to a signal. Both are
% then raised together: inv(M) W, and so the subspace, is unchanged.
  [V, values] = eig(s.M);
  values = diag(values);
  least = eps ^ 0.75 * max(values);
  small = values < least;
  if any(small)
    values = max(values, 1e-4 * least);
    lifted = values;
    lifted(small) = 100 * least;
    root = V .* sqrt(lifted).';
    s.M = root * root.';
    s.B = s.B * ((V .* (lifted ./ values).') * V.');
  end
end

function M = lateral_from(Minv)
% M from the user's inverse of it.
  Minv = (Minv + Minv.') / 2;
  [~, failed] = chol(Minv);
  if failed
    error('online_psp:badOption', 'Minv0 must be symmetric and positive definite.');
  end
  M = spd_inverse(Minv);
end
