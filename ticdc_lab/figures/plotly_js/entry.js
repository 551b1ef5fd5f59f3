'use strict';
const Plotly = require('plotly.js/lib/core'); // it has scatter
Plotly.register([
  require('plotly.js/lib/bar'),
  require('plotly.js/lib/heatmap'),
  require('plotly.js/lib/icicle'),
  require('plotly.js/lib/table'),
]);
module.exports = Plotly;
