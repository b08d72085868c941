#!/bin/sh
# Copies the API reference page's files from npm to internal/docspage/page/vendor, where they are committed, so that neither
# a build nor a browser needs a network. To upgrade: change the version in internal/docspage/package.json, run this.
#   usage: scripts/vendor-docs.sh
set -eu
cd "$(dirname "$0")/../internal/docspage"

npm install --no-audit --no-fund --package-lock-only # a lockfile that is current is left as it is
npm ci --no-audit --no-fund

rm -rf page/vendor
mkdir page/vendor
for file in swagger-ui-bundle.js swagger-ui-bundle.js.LICENSE.txt swagger-ui.css favicon-32x32.png LICENSE NOTICE; do
	cp "node_modules/swagger-ui-dist/$file" page/vendor/
done
chmod 644 page/vendor/*
rm -rf node_modules
