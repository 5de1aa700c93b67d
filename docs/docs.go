// Package docs carries the files that other people copy: the workflow, and the action's description. Embedding them from
// here keeps one copy: what the documents show is what the demo runs.
package docs

import (
	_ "embed"
	"fmt"
	"strings"
)

//go:embed workflows/errand.yml
var workflow string

// placeholder stands in the workflow file where the control plane's address goes.
const placeholder = "https://errand.example.com"

// Workflow gives the workflow file for a control plane. The address is pinned in the file, so that whoever can dispatch it
// cannot choose who instructs the agent.
func Workflow(controlPlane string) (string, error) {
	if strings.Count(workflow, placeholder) != 1 {
		return "", fmt.Errorf("docs/workflows/errand.yml must name %s exactly once", placeholder)
	}
	return strings.Replace(workflow, placeholder, controlPlane, 1), nil
}
