"use strict";

SwaggerUIBundle({
  dom_id: "#reference",
  url: "/openapi.json",
  deepLinking: true, // an operation has an address
  docExpansion: "list",
  filter: true,
  defaultModelsExpandDepth: 0,
  displayRequestDuration: true,
  validatorUrl: null, // the contract is shown to nobody else
});
