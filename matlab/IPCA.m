classdef IPCA < FrameAlgorithm
% IPCA  Incremental PCA: components with their variances, the best rank-K model at every sample.
%
%   ipca = IPCA(K, D)                D = [] learns the number of features from the first sample
%   ipca = IPCA(K, D, name, value, ...)
%
%   Options (default):
%     'Uhat0' ([])            D-by-K start for the components, made orthonormal; [] starts from the first K samples
%     'sigma2_0' ([])         K start values for the variances, not negative; zeros
%     'learning_rate' ([])    function handle t -> alpha_t in [0,1), t from 1; 1/(t+1)
%     'block_size' ('auto')   samples compressed at a time: changes speed, not results
%
%   y = ipca.fit_next(x)        x: D-by-1;  y: K-by-1, in the components before the update
%   Y = ipca.fit_block(X)       X: n-by-D, samples as rows;  Y: n-by-K
%   U = ipca.get_components()   D-by-K, orthonormal columns, largest variance first
%   ipca.sigma2, ipca.t         K-by-1 variances; samples seen
%
%   For sample x_t (Arora, Cotter, Livescu, Srebro 2012, as in Giovannucci et al. 2018):
%
%     y = U' x;  r = x - U y
%     (V, L) = top-K eigenpairs of (1 - alpha_t) diag(sigma2, 0) + alpha_t v v',  v = [y; |r|]
%     sigma2 = L;  U = [U r/|r|] V
%
%   Departure: where the residual vanishes, sqrt(alpha_t) |r| <= 1e-7 |x|, the step stays in the
%   K-by-K problem, because augmenting with a zero direction loses a column of U among the ties.
%
%   Example
%     X = spiked_covariance(2000, 100, 4);
%     ipca = IPCA(4, 100);
%     Y = ipca.fit_block(X);
%     U = ipca.get_components();
%
%   See also FSM, CCIPCA, StreamingAlgorithm, subspace_error

  methods
    function obj = IPCA(K, D, varargin)
      if nargin < 2
        D = [];
      end
      defaults = struct('Uhat0', [], 'sigma2_0', [], 'learning_rate', [], 'block_size', 'auto');
      obj@FrameAlgorithm(K, D, parse_options(defaults, varargin), @(t) 1 ./ (t + 1), 0);
    end
  end

  methods (Access = protected)
    function begin(obj, U)
      [obj.state.variances, order] = sort(obj.state.variances, 'descend');
      begin@FrameAlgorithm(obj, U(:, order));
    end

    function U = unit_columns(obj, Uhat0) %#ok<INUSL>
      U = orthonormal(Uhat0);
    end

    function Z = start_coordinates(obj, R)
      % U is orthonormal but for rounding: what little it drifted is taken out at every block.
      Z = eye(size(R, 1), obj.K);
      Z(R(:, 1:obj.K) < 0 & Z == 1) = -1; % Householder reflections may flip a column
    end

    function [Z, variances, Y] = recur(obj, Z, variances, C, alphas) %#ok<INUSL>
      [Z, variances, Y] = ipca_recur(Z, variances, C, alphas);
    end
  end
end
