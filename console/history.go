package console

import (
	"encoding/json"
	"time"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/store"
)

// entry is one row of a run's history.
type entry struct {
	At         time.Time
	Kind       string
	Transition *transition // of kind run.transition
	Text       string      // of every other kind
	Who        string      // the person's name, when a person did it
}

// transition is the part of a run.transition record that a page shows.
type transition struct {
	From    errand.RunState `json:"from"`
	To      errand.RunState `json:"to"`
	Trigger errand.Trigger  `json:"trigger"`
	Reason  errand.Reason   `json:"reason"`
	Detail  string          `json:"detail"`
	Person  errand.ID       `json:"person"`
}

// verdict is one answer of the claim check.
type verdict struct {
	At       time.Time   `json:"-"`
	Seq      int         `json:"seq"`
	Verdict  string      `json:"verdict"`
	Reason   string      `json:"reason"`
	Decision string      `json:"decision"`
	Findings []finding   `json:"findings"`
	Files    []claimFile `json:"files"`
}

type finding struct {
	Code string `json:"code"`
	Path string `json:"path"`
	Line int    `json:"line"`
}

type claimFile struct {
	Path    string `json:"path"`
	Kind    string `json:"kind"`
	Added   int    `json:"added"`
	Removed int    `json:"removed"`
}

// personAction is the part of a person.action record that a page shows.
type personAction struct {
	Action string    `json:"action"`
	Person errand.ID `json:"person"`
}

const (
	kindTransition   = "run.transition"
	kindVerdict      = "claim.verdict"
	kindPersonAction = "person.action"
	kindLateEvidence = "run.late_evidence"
)

// readHistory decodes a run's journal rows, oldest first. A record that does not decode stays in the history and says so.
func readHistory(rows []store.ConsoleJournalRow, names map[errand.ID]string) (entries []entry, verdicts []verdict) {
	for _, row := range rows {
		e := entry{At: row.At, Kind: row.Kind}
		body := []byte(row.Body)
		var err error
		switch row.Kind {
		case kindTransition:
			var t transition
			if err = json.Unmarshal(body, &t); err == nil && t.To != "" {
				e.Transition, e.Who = &t, names[t.Person]
			}
		case kindVerdict:
			v := verdict{At: row.At}
			if err = json.Unmarshal(body, &v); err == nil && v.Verdict != "" {
				verdicts = append(verdicts, v)
				e.Text = "Claim: " + verdictLabel(v).Text
			}
		case kindPersonAction:
			var a personAction
			if err = json.Unmarshal(body, &a); err == nil && a.Action != "" {
				e.Text, e.Who = words(a.Action), nameOf(a.Person, names)
			}
		case kindLateEvidence:
			e.Text = "A report came after the end and was kept as evidence."
		default:
			e.Text = words(row.Kind)
		}
		if e.Transition == nil && e.Text == "" {
			e.Text = "This record cannot be read."
		}
		entries = append(entries, e)
	}
	return entries, verdicts
}

func nameOf(person errand.ID, names map[errand.ID]string) string {
	if name, ok := names[person]; ok {
		return name
	}
	return "somebody who is no longer a member"
}

// verdictLabel says a verdict about the claim. It never says that the change is right: that was not asked.
func verdictLabel(v verdict) label {
	switch {
	case v.Verdict == "verified":
		return label{"Verified: the claim matches the change", toneGood}
	case v.Verdict == "needs_review" && v.Reason == "NO_JUDGE":
		return label{"Files verified, words not judged", toneLive}
	case v.Verdict == "needs_review":
		return label{"Needs review", toneWarn}
	case v.Verdict == "rejected":
		return label{"Rejected: the claim and the change do not agree", toneBad}
	default:
		return label{words(v.Verdict), toneWarn}
	}
}

// findingText says what a finding's code means.
func findingText(code string) string {
	if t, ok := findingTexts[code]; ok {
		return t
	}
	return words(code)
}

var findingTexts = map[string]string{
	"CLAIM_INVALID":          "the claim itself is not well formed",
	"UNCLAIMED_CHANGE":       "changed, but not claimed",
	"CLAIMED_NOT_CHANGED":    "claimed, but not changed",
	"PROTECTED_PATH":         "a protected path",
	"DIFF_TOO_LARGE":         "the change is larger than the policy allows",
	"MODE_CHANGED":           "the file's mode changed without being claimed",
	"TYPE_CHANGED":           "the file's type changed without being claimed",
	"BINARY_CHANGED":         "a binary file changed without being claimed",
	"CASE_COLLISION":         "two names that differ in case only",
	"BASE_MISMATCH":          "the claim was made on another base",
	"REVIEWER_DIRECTED_TEXT": "text that addresses the reviewer",
}
