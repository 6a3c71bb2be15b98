function tests = test_vectors(path)
% test_vectors  Every algorithm against Python's reference_step, after every sample, to 1e-10.
  content = load(path, '-mat');
  tests = cell(0, 2);
  for i = 1:numel(content.cases)
    c = content.cases{i};
    tests = [tests; {
      ['vectors: ' c.name ', basis after every sample'], @() basis_after_every_sample(c)
      ['vectors: ' c.name ', outputs without reading between'], @() outputs_without_reading(c)
      ['vectors: ' c.name ', blocks of many sizes'], @() blocks_of_many_sizes(c)
    }]; %#ok<AGROW>
  end
end

function model = make(c, varargin)
  options = [fieldnames(c.options), struct2cell(c.options)].';
  if c.custom_rate
    options = [options, {'learning_rate'; @(t) c.alphas(t)}];
  end
  if c.custom_beta
    options = [options, {'beta'; @(t) c.betas(t)}];
  end
  model = feval(c.algorithm, c.K, size(c.X, 2), options{:}, varargin{:});
end

function first = first_comparable(c)
% From the first K samples on, or from the first sample where the start is given.
  first = 1;
  if c.from_first_samples
    first = c.K;
  end
end

function basis_after_every_sample(c)
  model = make(c);
  for t = 1:size(c.X, 1)
    model.fit_next(c.X(t, :).');
    U = model.get_components();
    check(norm(U.' * U - eye(c.K)) < 1e-12, 't=%d: not orthonormal', t);
    if t >= first_comparable(c)
      err = subspace_error(U, c.bases(:, :, t));
      check(err <= 1e-10, 't=%d: subspace error %g', t, err);
    end
  end
  check(model.t == size(c.X, 1), 't is %d', model.t);
end

function outputs_without_reading(c)
% An open block stays open here. Signs of components are free, so outputs are compared without
% theirs; for IPCA components with tied variances are free altogether, so only the length is.
  sizes = {'auto', 1, 5};
  for i = 1:numel(sizes)
    model = make(c, 'block_size', sizes{i});
    for t = 1:size(c.X, 1)
      y = model.fit_next(c.X(t, :).');
      if t >= first_comparable(c)
        compare_outputs(c, y, c.Y(t, :).', t);
      end
    end
    compare_final(c, model);
  end
end

function blocks_of_many_sizes(c)
  sizes = {'auto', 1, 7, 1000};
  for i = 1:numel(sizes)
    model = make(c, 'block_size', sizes{i});
    Y = model.fit_block(c.X);
    for t = first_comparable(c):size(c.X, 1)
      compare_outputs(c, Y(t, :).', c.Y(t, :).', t);
    end
    compare_final(c, model);
  end
  model = make(c);
  splits = [1 2 1 5 3 11 4 40 1000];
  done = 0;
  for n = splits
    last = min(done + n, size(c.X, 1));
    model.fit_block(c.X(done+1:last, :));
    done = last;
    if done >= first_comparable(c)
      err = subspace_error(model.get_components(), c.bases(:, :, done));
      check(err <= 1e-10, 't=%d: subspace error %g', done, err);
    end
  end
end

function compare_outputs(c, y, expected, t)
  if strcmp(c.algorithm, 'IPCA')
    difference = abs(norm(y) - norm(expected));
  else
    difference = norm(abs(y) - abs(expected));
  end
  check(difference <= 1e-10 * max(1, norm(c.X(t, :))), 't=%d: outputs differ by %g', t, difference);
end

function compare_final(c, model)
  err = subspace_error(model.get_components(), c.bases(:, :, end));
  check(err <= 1e-10, 'at the end: subspace error %g', err);
end
