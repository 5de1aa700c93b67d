package scrub

import (
	"encoding/base64"
	"strings"
)

// rules says which kinds of rule are tried.
type rules uint8

const (
	secrets      rules = 1 << iota // known prefixes, private keys, userinfo of URLs
	pairs                          // keyword = value, any value
	literalPairs                   // keyword = value, values that look real
	emails
	networks // IP addresses and card numbers
	persons  = emails | networks
)

// What an anchor byte can be the anchor of.
const (
	anchorPrefix uint8 = 1 << iota
	anchorSeparator
	anchorAt
	anchorDigit
)

// found is a stretch of text to remove: [from, to).
type found struct {
	from, to int
	kind     string
}

// alphabet is a set of ASCII characters.
type alphabet [256]bool

func letters(more string) *alphabet {
	var a alphabet
	for c := range 256 {
		a[c] = word(byte(c)) && c != '_'
	}
	for i := range len(more) {
		a[more[i]] = true
	}
	return &a
}

// word tells whether c belongs to an identifier.
func word(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_'
}

func digit(c byte) bool { return c >= '0' && c <= '9' }

// prefix is a rule for tokens that begin with known characters.
type prefix struct {
	text     string
	kind     string
	set      *alphabet
	least    int                     // characters after the prefix
	anywhere bool                    // so telling that it needs no boundary before it
	check    func(value string) bool // on what follows the prefix; nil = none
	keep     bool                    // the prefix stays in the text ("Bearer ")
	// end, in place of set, says how far a hit reaches, counted from the prefix (0 = no hit), and how far it looked.
	end func(text string) (n, seen int)
}

// New makes a Scrubber with all rules. The forms are those that the services document for their own secrets.
func New() *Scrubber {
	alnum, under, dash, dotted := letters(""), letters("_"), letters("_-"), letters("_-.")
	base64url := letters("+/=_-.~")
	s := &Scrubber{}
	add := func(kind string, least int, set *alphabet, anywhere bool, check func(string) bool, texts ...string) {
		for _, t := range texts {
			s.prefixes[t[0]] = append(s.prefixes[t[0]], &prefix{text: t, kind: kind, set: set, least: least, anywhere: anywhere, check: check})
		}
	}
	add(KindAWS, 16, alnum, false, awsID, "AKIA", "ASIA", "ABIA", "ACCA")
	// ghs_ comes in two forms: 36 letters, and ghs_APPID_JWT of any length with dots.
	add(KindGitHub, 20, dotted, true, nil, "ghs_")
	add(KindGitHub, 20, under, true, nil, "ghp_", "gho_", "ghu_", "ghr_", "github_pat_")
	add(KindSlack, 10, dash, true, nil, "xoxb-", "xoxp-", "xoxa-", "xoxr-", "xoxs-", "xoxe-", "xoxo-", "xapp-", "xoxe.xoxp-", "xoxe.xoxb-")
	add(KindSlack, 20, letters("/"), true, nil, "hooks.slack.com/services/", "hooks.slack.com/workflows/")
	add(KindStripe, 10, under, true, nil, "sk_live_", "rk_live_", "sk_test_", "rk_test_")
	add(KindAnthropic, 20, dash, true, nil, "sk-ant-")
	add(KindOpenAI, 20, dash, true, mixed, "sk-proj-", "sk-svcacct-", "sk-admin-")
	add(KindOpenAI, 20, dash, false, mixed, "sk-")
	add(KindGoogle, 35, dash, true, nil, "AIza")
	add(KindGoogle, 20, dash, false, nil, "ya29.", "GOCSPX-")
	add(KindToken, 20, dotted, true, nil, "glpat-", "npm_", "pypi-AgEIcHlwaS5vcmc", "dop_v1_", "shpat_", "shpss_", "xkeysib-", "sntrys_", "sntryu_", "phx_")
	add(KindToken, 20, letters("+/="), false, mixed, "whsec_")
	add(KindToken, 30, letters("_-."), false, mixed, "SG.")
	// What gitleaks' rules knew and these did not (tools/scruboracle). Such prefixes are parts of names too (berlin_api_),
	// so they stand at the beginning of a word, and what follows is no words.
	add(KindToken, 20, dash, false, drawn, "glptt-", "glrt-", "gldt-", "glcbt-", "glimt-", "glsoat-", "glft-", "gloas-", "glagent-", "dckr_pat_", "dckr_oat_",
		"PMAK-", "pscale_tkn_", "pscale_pw_", "pscale_oauth_", "lin_api_", "pplx-", "glsa_", "NRAK-", "AGE-SECRET-KEY-1", "sq0atp-", "sq0csp-")
	add(KindToken, 32, alnum, false, hexOnly, "shpca_", "shppa_", "doo_v1_", "dor_v1_", "rubygems_", "pul-", "dapi", "SK")
	add(KindToken, 40, dotted, true, nil, ".atlasv1.")       // behind the 14 letters that name the token
	add(KindToken, 34, alnum, false, nil, "hf_", "api_org_") // letters of both cases, and by chance of one
	add(KindToken, 32, letters("+/="), false, mixed, "glc_")
	add(KindToken, 40, alnum, false, mixed, "ntn_", "dp.pt.", "dp.st.", "dp.sa.", "dp.ct.")
	add(KindToken, 40, letters("_-+/="), false, mixed, "fo1_", "fm1_", "fm1a_", "fm2_", "hvs.", "hvb.")
	add(KindToken, 22, dash, false, mixed, "EAAA")
	for _, scheme := range []string{"Bearer ", "bearer ", "BEARER "} {
		s.prefixes[scheme[0]] = append(s.prefixes[scheme[0]], &prefix{text: scheme, kind: KindAuth, set: base64url, least: 8, check: hasDigit, keep: true})
	}
	for _, scheme := range []string{"Basic ", "basic "} {
		s.prefixes[scheme[0]] = append(s.prefixes[scheme[0]], &prefix{text: scheme, kind: KindAuth, set: base64url, least: 4, check: basic, keep: true})
	}
	s.prefixes['e'] = append(s.prefixes['e'], &prefix{text: "eyJ", kind: KindJWT, anywhere: true, end: jwt(dash)})
	s.prefixes['-'] = append(s.prefixes['-'], &prefix{text: "-----BEGIN ", kind: KindPrivateKey, anywhere: true, end: privateKey})

	for c := range s.prefixes {
		for _, p := range s.prefixes[c] {
			s.anchor[c] |= anchorPrefix
			s.second[c][p.text[1]>>6] |= 1 << (p.text[1] & 63)
		}
	}
	s.anchor['='] |= anchorSeparator
	s.anchor[':'] |= anchorSeparator
	s.anchor['@'] |= anchorAt
	for c := '0'; c <= '9'; c++ {
		s.anchor[c] |= anchorDigit
	}
	return s
}

// walk is one pass over one text.
type walk struct {
	*Scrubber
	text string
	last int // where the last hit ended: nothing before it is looked at again
	// dead says, for a rule that failed, up to where it need not be tried again: a stretch that is no token does not hold
	// one of the same rule further in. Without it "eyJeyJeyJ..." would cost the square of its length.
	dead map[*prefix]int
}

// pass walks the text once and gives what is to be removed, in order and without overlap. Its time is linear in the
// length of the text, whatever the text is.
func (s *Scrubber) pass(text string, what rules) []found {
	var hits []found
	w := walk{Scrubber: s, text: text}
	for i := 0; i < len(text); {
		a := s.anchor[text[i]]
		if a == 0 || a == anchorPrefix && !s.begins(text, i) {
			i++
			continue
		}
		h, ok := w.at(i, a, what)
		if !ok {
			i++
			continue
		}
		hits = append(hits, h)
		w.last, i = h.to, h.to
	}
	return hits
}

// begins tells by two bytes whether a known prefix may stand at i: one is too few, since most letters begin one.
func (s *Scrubber) begins(text string, i int) bool {
	if i+1 >= len(text) {
		return false
	}
	next := text[i+1]
	return s.second[text[i]][next>>6]&(1<<(next&63)) != 0
}

// at tries the rules whose anchor stands at i.
func (w *walk) at(i int, a uint8, what rules) (found, bool) {
	text, last := w.text, w.last
	if a&anchorPrefix != 0 && what&secrets != 0 {
		if h, ok := w.prefixed(i); ok {
			return h, true
		}
	}
	if a&anchorSeparator != 0 {
		if text[i] == ':' && what&secrets != 0 {
			if h, ok := userinfo(text, i, last); ok {
				return h, true
			}
		}
		if what&(pairs|literalPairs) != 0 {
			if h, ok := pair(text, i, last, what&literalPairs != 0); ok {
				return h, true
			}
		}
		if text[i] == ':' && what&networks != 0 {
			return ipv6(text, i, last)
		}
		return found{}, false
	}
	if a&anchorAt != 0 && what&emails != 0 {
		return email(text, i, last)
	}
	if a&anchorDigit != 0 && what&networks != 0 {
		if h, ok := ipv4(text, i, last); ok {
			return h, true
		}
		return card(text, i, last)
	}
	return found{}, false
}

func (w *walk) prefixed(i int) (found, bool) {
	text := w.text
	for _, p := range w.prefixes[text[i]] {
		if !strings.HasPrefix(text[i:], p.text) || !p.anywhere && !boundary(text, i, w.last) || i < w.dead[p] {
			continue
		}
		if p.end != nil {
			n, seen := p.end(text[i:])
			if n > 0 {
				return found{i, i + n, p.kind}, true
			}
			w.skip(p, i+seen)
			continue
		}
		start := i + len(p.text)
		to := start
		for to < len(text) && p.set[text[to]] {
			to++
		}
		seen := to
		for to > start && (text[to-1] == '.' || text[to-1] == '-') { // the end of a sentence, not of the token
			to--
		}
		if to-start < p.least || p.check != nil && !p.check(text[start:to]) {
			w.skip(p, seen)
			continue
		}
		if p.keep {
			return found{start, to, p.kind}, true
		}
		return found{i, to, p.kind}, true
	}
	return found{}, false
}

func (w *walk) skip(p *prefix, to int) {
	if w.dead == nil {
		w.dead = map[*prefix]int{}
	}
	w.dead[p] = to
}

// boundary tells whether something may begin at i: after what is no part of an identifier, after a removed stretch, or
// after an escape that survived as text (\n, %20).
func boundary(text string, i, last int) bool {
	if i == last || !word(text[i-1]) {
		return true
	}
	if i-2 >= last && text[i-2] == '\\' && strings.IndexByte("nrt", text[i-1]) >= 0 {
		return true
	}
	return i-3 >= last && text[i-3] == '%' && hex(text[i-2]) && hex(text[i-1])
}

func hex(c byte) bool { return digit(c) || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F' }

func awsID(v string) bool {
	if len(v) != 16 {
		return false
	}
	for i := range len(v) {
		if c := v[i]; (c < 'A' || c > 'Z') && (c < '2' || c > '7') {
			return false
		}
	}
	return true
}

func hasDigit(v string) bool { return strings.ContainsAny(v, "0123456789") }

// mixed tells a random token from words joined by dashes (a CSS class, a slug).
func mixed(v string) bool {
	return hasDigit(v) && strings.ContainsAny(v, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") && strings.ContainsAny(v, "abcdefghijklmnopqrstuvwxyz")
}

// drawn tells letters that chance has drawn from words of one case: such a token may lack digits.
func drawn(v string) bool {
	return hasDigit(v) || strings.ToLower(v) != v && strings.ToUpper(v) != v
}

func hexOnly(v string) bool {
	for i := range len(v) {
		if !hex(v[i]) {
			return false
		}
	}
	return true
}

func basic(v string) bool {
	b, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(v, "="))
	return err == nil && strings.IndexByte(string(b), ':') >= 0
}

// jwt reads header.payload.signature, the signature possibly empty. The header is JSON, so it begins with eyJ.
func jwt(set *alphabet) func(string) (n, seen int) {
	return func(text string) (n, seen int) {
		var ends [3]int
		for part := range ends {
			start := n
			for n < len(text) && set[text[n]] {
				n++
			}
			ends[part] = n
			if part < 2 {
				if n-start < 10 || n >= len(text) || text[n] != '.' {
					return 0, ends[0]
				}
				n++
			}
		}
		if !strings.HasPrefix(text[ends[0]+1:], "eyJ") && ends[2]-ends[1] < 10 {
			return 0, ends[0]
		}
		return ends[2], ends[2]
	}
}

// privateKey reads a PEM block, to its end line or, when that is missing, to the end of the text.
func privateKey(text string) (n, seen int) {
	head := text[:min(len(text), 80)]
	stop := strings.Index(head[11:], "-----")
	if stop < 0 || !strings.Contains(head[:11+stop], "PRIVATE KEY") {
		return 0, 0
	}
	start := 11 + stop + 5
	end := strings.Index(text[start:], "-----END ")
	if end < 0 {
		return len(text), len(text)
	}
	end += start + len("-----END ")
	if stop = strings.Index(text[end:min(len(text), end+80)], "-----"); stop >= 0 {
		return end + stop + 5, end
	}
	return len(text), len(text)
}

// userinfo reads the user and password of a URL, at the colon of "://".
func userinfo(text string, i, last int) (found, bool) {
	if !strings.HasPrefix(text[i:], "://") {
		return found{}, false
	}
	start := i
	for start > last && (word(text[start-1]) || strings.IndexByte("+-.", text[start-1]) >= 0) {
		start--
	}
	switch strings.ToLower(text[start:i]) {
	case "", "file", "app", "webpack", "webpack-internal", "ng", "node", "turbopack": // of stack frames: what has an @ there is a package
		return found{}, false
	}
	from, at := i+3, -1
	for j := from; j < len(text) && j < from+1024; j++ {
		switch text[j] {
		case '/', '?', '#', ' ', '\t', '\n', '\r', '"', '\'', '<', '>', '`', '\\':
			j = len(text)
		case '@':
			at = j
		}
	}
	if at <= from || text[from:at] == "git" {
		return found{}, false
	}
	return found{from, at, KindURL}, true
}
