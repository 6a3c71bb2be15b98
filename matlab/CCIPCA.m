classdef CCIPCA < FrameAlgorithm
% CCIPCA  Candid covariance-free incremental PCA: one component after the other, each from
%   what the ones before it leave.
%
%   ccipca = CCIPCA(K, D)            D = [] learns the number of features from the first sample
%   ccipca = CCIPCA(K, D, name, value, ...)
%
%   Options (default):
%     'ell' (2.0)             amnesia: samples weigh 1 + ell times more than in a plain average
%     'Uhat0' ([])            D-by-K start for the components, scaled to unit columns; [] starts from the first K samples
%     'sigma2_0' ([])         K start values for the variances, not negative; 1e-8
%     'learning_rate' ([])    function handle t -> alpha_t in [0,1), t from 1, in place of ell
%     'block_size' ('auto')   samples compressed at a time: changes speed, not results
%
%   y = ccipca.fit_next(x)      x: D-by-1;  y: K-by-1
%   Y = ccipca.fit_block(X)     X: n-by-D, samples as rows;  Y: n-by-K
%   U = ccipca.get_components() D-by-K, orthonormal columns, largest variance first
%   ccipca.sigma2, ccipca.t     K-by-1 variances; samples seen
%
%   For sample x_t (Weng, Zhang, Hwang 2003, as in Giovannucci et al. 2018), for k = 1 .. K:
%
%     v = (1 - alpha_t) sigma2_k u_k + alpha_t x x'u_k;  sigma2_k = |v|;  u_k = v/|v|
%     y_k = u_k'x;  x = x - y_k u_k
%
%   with alpha_t = min(1 + ell, t)/(t + 1). The time t advances once for each SAMPLE, as in the
%   papers; beware of code that advances it once for each component.
%
%   Example
%     X = spiked_covariance(2000, 100, 4);
%     ccipca = CCIPCA(4, 100);
%     Y = ccipca.fit_block(X);
%     U = ccipca.get_components();
%
%   See also FSM, IPCA, StreamingAlgorithm, subspace_error

  properties (SetAccess = private)
    ell = 2.0
  end

  methods
    function obj = CCIPCA(K, D, varargin)
      if nargin < 2
        D = [];
      end
      defaults = struct('ell', 2.0, 'Uhat0', [], 'sigma2_0', [], 'learning_rate', [], 'block_size', 'auto');
      options = parse_options(defaults, varargin);
      ell = check_number(options.ell, 'ell', @(l) l >= 0, 'that is not negative');
      obj@FrameAlgorithm(K, D, options, @(t) min(1 + ell, t) ./ (t + 1), 1e-8);
      obj.ell = ell;
    end
  end

  methods (Access = protected)
    function U = unit_columns(obj, Uhat0) %#ok<INUSL>
      norms = sqrt(sum(Uhat0 .^ 2, 1));
      if any(norms == 0)
        error('online_psp:badOption', 'Uhat0 must have no zero column; column %d is zero.', find(norms == 0, 1));
      end
      U = Uhat0 ./ norms;
    end

    function [Z, variances, Y] = recur(obj, Z, variances, C, alphas) %#ok<INUSL>
      [Z, variances, Y] = ccipca_recur(Z, variances, C, alphas);
    end
  end
end
