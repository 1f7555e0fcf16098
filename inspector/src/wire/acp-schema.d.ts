// The schemas of ACP, which the build takes out of the official package.
declare module "acp-schema:1" {
  const schema: unknown;
  export default schema;
}
declare module "acp-schema:2" {
  const schema: unknown;
  export default schema;
}
