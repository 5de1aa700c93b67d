package scrub

import "strings"

// keyword is what the name of a value says about it.
type keyword struct {
	kind string
	weak bool // also an ordinary word ("unexpected token"): the value must look like a secret
	line bool // a header whose value goes to the end of the line
}

// keyKind reads a name: case and separators do not matter, and what stands before the word neither (DB_PASSWORD,
// "stripeApiKey", "x-csrf-token"). The zero keyword means that the name says nothing.
func keyKind(name string) keyword {
	var buf [64]byte
	n := 0
	if len(name) > len(buf) {
		name = name[len(name)-len(buf):]
	}
	for i := range len(name) {
		c := name[i]
		if c >= 'A' && c <= 'Z' {
			c |= 0x20
		}
		if c != '-' && c != '_' && c != '.' && c != ' ' {
			buf[n] = c
			n++
		}
	}
	k := string(buf[:n])
	switch k {
	case "":
		return keyword{}
	case "pass", "pw":
		return keyword{kind: KindPassword, weak: true}
	case "auth", "sig", "token":
		return keyword{kind: KindSecret, weak: true}
	case "cookie", "setcookie", "cookies":
		return keyword{kind: KindCookie, line: true}
	case "session", "sid", "sessid":
		return keyword{kind: KindCookie, weak: true}
	case "authorization", "proxyauthorization", "xauthorization":
		return keyword{kind: KindAuth}
	}
	for _, suffix := range []string{"password", "passwd", "passphrase", "pwd"} {
		if strings.HasSuffix(k, suffix) {
			return keyword{kind: KindPassword}
		}
	}
	for _, suffix := range []string{"sessionid", "sessid", "connectsid"} {
		if strings.HasSuffix(k, suffix) {
			return keyword{kind: KindCookie}
		}
	}
	for _, suffix := range []string{
		"secret", "token", "apikey", "secretkey", "accesskey", "privatekey", "signingkey", "encryptionkey", "authkey", "accountkey",
		"sharedaccesssignature", "secretaccesskey",
	} {
		if strings.HasSuffix(k, suffix) {
			return keyword{kind: KindSecret}
		}
	}
	if strings.HasSuffix(k, "credential") || strings.HasSuffix(k, "credentials") {
		return keyword{kind: KindSecret, weak: true}
	}
	return keyword{}
}

// pair reads "name = value" round the separator at i, in the forms of shells, JSON, YAML, query strings, headers, Go (:=)
// and Ruby (=>). Only the value is removed. With literal it must be written out and look real.
func pair(text string, i, last int, literal bool) (found, bool) {
	sep := text[i]
	next, prev := byte(0), byte(0)
	if i+1 < len(text) {
		next = text[i+1]
	}
	if i > last {
		prev = text[i-1]
	}
	if next == sep || prev == sep || sep == '=' && strings.IndexByte("!<>", prev) >= 0 || sep == ':' && (next == '=' || next == '/') {
		return found{}, false // a comparison, a scope (Token::new), a URL, or := whose turn comes at the =
	}
	name, spaced := nameBefore(text, i, last)
	if name == "" {
		return found{}, false
	}
	k := keyKind(name)
	if k.kind == "" || literal && (k.line || k.kind == KindAuth) {
		return found{}, false
	}
	if k.kind == KindPassword && strings.HasSuffix(strings.ToLower(name), "pwd") && pathAfter(text, i+1) {
		return found{}, false // the working directory; told before its end is looked for, or a text of many would be read many times
	}
	if literal { // what does not look real is passed over, so it must not be read to its end each time
		text = text[:min(len(text), i+512)]
	}
	v, ok := valueAfter(text, i+1, k)
	if !ok {
		return found{}, false
	}
	value := text[v.from:v.to]
	switch {
	case strings.HasPrefix(value, markOpen) || harmless(value):
		return found{}, false
	case literal:
		envFile := sep == '=' && !spaced && !v.spaced && name == strings.ToUpper(name)
		ok = (v.quoted || envFile) && looksReal(value)
	case k.weak && !v.quoted && (spaced || v.spaced):
		ok = len(value) >= 8 && hasDigit(value)
	}
	return found{v.from, v.to, k.kind}, ok
}

// pathAfter tells whether the value that begins at or after j is a path: its first byte past blanks and a quote says so.
func pathAfter(text string, j int) bool {
	for n := 0; j < len(text) && n < 5 && strings.IndexByte("> \t\\\"'`", text[j]) >= 0; n++ {
		j++
	}
	return j < len(text) && (text[j] == '/' || text[j] == '~')
}

// nameBefore reads the identifier that ends before the separator, past blanks, quotes and a closing bracket.
func nameBefore(text string, i, last int) (name string, spaced bool) {
	j := i
	if text[i] == '=' && j > last && text[j-1] == ':' {
		j--
	}
	for n := 0; j > last && n < 3 && (text[j-1] == ' ' || text[j-1] == '\t'); n++ {
		j--
		spaced = true
	}
	for n := 0; j > last && n < 3 && strings.IndexByte("\"'\\]`", text[j-1]) >= 0; n++ {
		j--
	}
	end := j
	for j > last && end-j < 64 && (word(text[j-1]) || text[j-1] == '-' || text[j-1] == '.') {
		j--
	}
	return text[j:end], spaced
}

type span struct {
	from, to       int
	quoted, spaced bool
}

// valueAfter finds the value that begins at or after j.
func valueAfter(text string, j int, k keyword) (span, bool) {
	v := span{}
	if j < len(text) && text[j] == '>' {
		j++
	}
	for n := 0; j < len(text) && n < 3 && (text[j] == ' ' || text[j] == '\t'); n++ {
		j++
		v.spaced = true
	}
	escaped := j+1 < len(text) && text[j] == '\\'
	if escaped {
		j++
	}
	if j >= len(text) {
		return v, false
	}
	if q := text[j]; q == '"' || q == '\'' || q == '`' {
		v.quoted = true
		v.from = j + 1
		v.to = closing(text, v.from, q, escaped)
	} else {
		v.from = j
		if escaped {
			v.from--
		}
		v.to = bareEnd(text, v.from, k)
	}
	if k.kind == KindAuth {
		v = afterScheme(text, v)
	}
	return v, v.to > v.from
}

// closing finds the quote that ends a quoted value, or the end of its line.
func closing(text string, from int, quote byte, escaped bool) int {
	for j := from; j < len(text); j++ {
		switch {
		case text[j] == '\n':
			return j
		case text[j] == '\\' && escaped && j+1 < len(text) && text[j+1] == quote:
			return j
		case text[j] == '\\' && !escaped:
			j++
		case text[j] == quote:
			return j
		}
	}
	return len(text)
}

func bareEnd(text string, from int, k keyword) int {
	stop := " \t\r\n,;&\"'<>)}]|`"
	if k.line {
		stop = "\r\n\"'`"
	}
	if strings.HasPrefix(text[from:], markOpen) {
		return min(len(text), from+len(markOpen)) // already removed: the caller sees the mark
	}
	if n := strings.IndexAny(text[from:], stop); n >= 0 {
		return from + n
	}
	return len(text)
}

// afterScheme passes over the scheme of an Authorization value, which may stay, and takes the credentials after it.
func afterScheme(text string, v span) span {
	head := text[v.from:min(len(text), v.from+24)]
	scheme, _, two := strings.Cut(head, " ")
	if !two {
		return v
	}
	from := v.from + len(scheme)
	for from < len(text) && text[from] == ' ' {
		from++
	}
	switch strings.ToLower(scheme) {
	case "bearer", "basic", "token", "apikey", "negotiate":
		v.from = from
		if !v.quoted {
			v.to = bareEnd(text, from, keyword{})
		}
	case "digest", "aws4-hmac-sha256", "hmac", "signature", "oauth":
		v.from = from
		if !v.quoted {
			v.to = bareEnd(text, from, keyword{line: true})
		}
	}
	return v
}

// harmless values say that there is none, or that somebody has taken it out already.
func harmless(v string) bool {
	switch strings.ToLower(v) {
	case "", "null", "none", "nil", "true", "false", "undefined", "[filtered]", "[filtered", "[redacted]", "[redacted", "<redacted", "redacted", "(null", "{", "[", "(":
		return true
	}
	return strings.Trim(v, "*") == "" || strings.HasPrefix(v, markOpen)
}

// looksReal tells a secret that somebody pasted from a placeholder, a variable or a sentence.
func looksReal(v string) bool {
	if len(v) < 8 || strings.ContainsAny(v, " \t${}<>()") || !hasDigit(v) || !strings.ContainsAny(strings.ToLower(v), "abcdefghijklmnopqrstuvwxyz") {
		return false
	}
	low := strings.ToLower(v)
	for _, placeholder := range []string{"example", "changeme", "placeholder", "your", "xxxx", "dummy", "****", "...", "/"} {
		if strings.Contains(low, placeholder) {
			return false
		}
	}
	return true
}
