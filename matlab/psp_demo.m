function path = psp_demo(path)
% psp_demo  Error curves of FSM, IPCA and CCIPCA on spiked data; saved as a PNG.
%
%   psp_demo()             writes psp_demo.png in the current folder
%   psp_demo('curves.png')
%   path = psp_demo(...)   the path written; '' where nothing could be drawn
%
%   Each algorithm takes the same stream of samples, D = 200, K = 4, and from time to time its
%   subspace error against the true components is read. The figure needs no screen: Octave draws
%   through gnuplot there. Where no figure can be made at all the numbers are printed and a message
%   says so.
%
%   (Its name is not `demo`, because Octave and MATLAB have a function of that name.)
%
%   See also FSM, IPCA, CCIPCA, spiked_covariance
  if nargin < 1
    path = 'psp_demo.png';
  end
  D = 200;
  K = 4;
  n = 5000;
  [X, U] = spiked_covariance(n, D, K, 'rho', 0.05, 'seed', 1);
  times = unique([round(logspace(log10(K), log10(n), 40)), 100:100:n]);
  models = {FSM(K, D), IPCA(K, D), CCIPCA(K, D)};
  errors = zeros(numel(times), numel(models));
  done = 0;
  for i = 1:numel(times)
    for j = 1:numel(models)
      models{j}.fit_block(X(done+1:times(i), :));
      errors(i, j) = subspace_error(models{j}.get_components(), U);
    end
    done = times(i);
  end
  names = cellfun(@class, models, 'UniformOutput', false);
  for j = 1:numel(models)
    fprintf('%-7s subspace error after %d samples: %.4f\n', names{j}, n, errors(end, j));
  end
  try
    draw(times, errors, names, sprintf('Spiked covariance, D = %d, K = %d', D, K), path);
    fprintf('Figure saved in %s\n', path);
  catch problem
    fprintf('No figure could be made here (%s). On Debian, the packages gnuplot-nox and fonts-freefont-otf are enough.\n', problem.message);
    path = '';
  end
end

function draw(times, errors, names, heading, path)
  before = warning('off', 'all'); % Octave warns at length about gnuplot, and about every missing font
  restore = onCleanup(@() warning(before));
  device = {'-dpng', '-r120'};
  if exist('OCTAVE_VERSION', 'builtin') && any(strcmp(available_graphics_toolkits(), 'gnuplot')) && isempty(getenv('DISPLAY'))
    graphics_toolkit('gnuplot');
    device = {'-dpngcairo', '-S900,600'}; % gnuplot's own, without Ghostscript
  end
  window = figure('visible', 'off');
  cleanup = onCleanup(@() close(window));
  styles = {'-', '--', '-.'};
  colours = [0 0.447 0.741; 0.850 0.325 0.098; 0.466 0.674 0.188];
  for j = 1:size(errors, 2)
    semilogy(times, errors(:, j), styles{j}, 'Color', colours(j, :), 'LineWidth', 2);
    hold on
  end
  hold off
  grid on
  xlim([0, times(end)]);
  ylim([0.5 * min(errors(:)), 2 * max(errors(:))]);
  xlabel('samples seen');
  ylabel('subspace error');
  legend(names, 'Location', 'northeast');
  title(heading);
  print(window, path, device{:});
  if ~exist(path, 'file')
    error('online_psp:badFile', 'The file %s was not written.', path);
  end
end
