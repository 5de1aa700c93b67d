package githubsim

import "testing"

func TestExpressions(t *testing.T) {
	t.Parallel()
	v := values{"inputs.run": "r.1", "inputs.empty": "", "github.token": "tok", "github.ref_name": "main", "always()": "true", "success()": "false"}
	for in, want := range map[string]string{
		"plain":                                      "plain",
		"Errand ${{ inputs.run }}!":                  "Errand r.1!",
		"${{inputs.run}}-${{ github.ref_name }}":     "r.1-main",
		"${{ inputs.empty || github.token }}":        "tok",
		"${{ inputs.run || 'x' }}":                   "r.1",
		"${{ inputs.run && 'yes' || 'no' }}":         "yes",
		"${{ inputs.unknown && 'yes' || 'no' }}":     "no",
		"${{ 'it''s' }}":                             "it's",
		"${{ github.ref_name == 'MAIN' }}":           "true",
		"${{ github.ref_name != 'main' }}":           "false",
		"${{ !(inputs.empty == '') }}":               "false",
		"${{ always() && !success() }}":              "true",
		"${{ secrets.NOT_SET }}":                     "",
		"${{ 12 }}":                                  "12",
		"${{ INPUTS.RUN }}":                          "r.1",
		"${{ github.ref_name == 'a' || success() }}": "false",
	} {
		if got, err := v.expand(in); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", in, got, err, want)
		}
	}
	for _, bad := range []string{"${{ github.nothing }}", "${{ inputs.run", "${{ 'open }}", "${{ toJSON(github) }}", "${{ (1 }}", "${{ a b }}", "${{ }}", "${{ nothing() }}"} {
		if got, err := v.expand(bad); err == nil {
			t.Errorf("%s gave %q", bad, got)
		}
	}
}

func TestTokenPermissionsAreWhatTheFileSays(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		text string
		want map[string]string
	}{
		"declared":     {"permissions: {contents: write, pull-requests: write, id-token: write, issues: none}", map[string]string{"metadata": "read", "contents": "write", "pull_requests": "write"}},
		"none at all":  {"permissions: {}", map[string]string{"metadata": "read"}},
		"not declared": {"name: x", map[string]string{"metadata": "read", "contents": "read"}},
	} {
		w, err := parseWorkflow([]byte(tc.text + "\non: [push, workflow_dispatch]\njobs: {a: {steps: []}}\n"))
		if err != nil || len(w.jobs) != 1 || w.dispatch == nil {
			t.Fatalf("%s: %+v, %v", name, w, err)
		}
		got := w.jobs[0].tokenPermissions()
		if len(got) != len(tc.want) {
			t.Errorf("%s: %v", name, got)
		}
		for k, v := range tc.want {
			if got[k] != v {
				t.Errorf("%s: %v", name, got)
			}
		}
	}
}
