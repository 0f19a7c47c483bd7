// What a member shows to the service, and whom it trusts: a token, and files for https.
import { readFileSync } from "node:fs";

/** The headers of a request with this token, if there is one. */
export const authorization = (token) => (token ? { Authorization: `Bearer ${token}` } : {});

/**
 * Of one connection: the files as they are now, so that one that was renewed counts for the next connection. `ca` are
 * the authorities to trust, in place of those that Node.js brings.
 */
export function tlsOptions({ ca, certificate, key }) {
  if (!certificate !== !key) throw new Error("certificate and key belong together");
  const read = { ca, cert: certificate, key };
  return Object.fromEntries(Object.entries(read).filter(([, file]) => file).map(([name, file]) => [name, readFileSync(file)]));
}
