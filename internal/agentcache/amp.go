package agentcache

// AmpServer is the release of Amp whose loop runs on Amp's server that the tests
// start. The release that is driven through whole turns is the adapter's constant.
const AmpServer = "0.0.1790142911-g7618fb"
