package errand

import _ "embed"

// ActionYAML is action.yml, which can only be embedded from the folder where GitHub wants it to be: the demo's workflow
// runs by it, so that what is shown is what users get.
//
//go:embed action.yml
var ActionYAML []byte
