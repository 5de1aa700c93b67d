package scrub

import (
	"net/netip"
	"strings"
)

// email reads an address round the @ at i. Not taken for one: git@host (of a clone address), pkg@1.2.3-beta.next (a
// version), logo@2x.png and other names that end like a file and not like a domain.
func email(text string, i, last int) (found, bool) {
	from := i
	for from > last && i-from < 64 && (word(text[from-1]) || strings.IndexByte(".+-%", text[from-1]) >= 0) {
		from--
	}
	for from < i && strings.IndexByte(".-%", text[from]) >= 0 {
		from++
	}
	to := i + 1
	for to < len(text) && to-i < 255 && (word(text[to]) && text[to] != '_' || text[to] == '.' || text[to] == '-') {
		to++
	}
	for to > i+1 && (text[to-1] == '.' || text[to-1] == '-') {
		to--
	}
	local, domain := text[from:i], text[i+1:to]
	dot := strings.LastIndexByte(domain, '.')
	if local == "" || local == "git" || dot < 1 || strings.Contains(domain, "..") || domain[0] == '.' || domain[0] == '-' {
		return found{}, false
	}
	tld := strings.ToLower(domain[dot+1:])
	if len(tld) < 2 || strings.ContainsAny(tld, "0123456789-") || fileEnding(tld) || version(domain) {
		return found{}, false
	}
	return found{from, to, KindEmail}, true
}

// version tells whether a domain begins as a version does: 1.2, v1.2.
func version(s string) bool {
	s = strings.TrimPrefix(s, "v")
	n := 0
	for n < len(s) && digit(s[n]) {
		n++
	}
	return n > 0 && n+1 < len(s) && s[n] == '.' && digit(s[n+1])
}

// fileEnding lists endings of files that are no top-level domains. Those that are both (py, rs, sh, pl, md) stay
// domains: an address must not slip through.
func fileEnding(s string) bool {
	switch s {
	case "png", "jpg", "jpeg", "gif", "svg", "webp", "avif", "ico", "woff", "woff2", "ttf",
		"js", "mjs", "cjs", "ts", "tsx", "jsx", "css", "scss", "less", "map", "json", "html", "htm", "vue", "svelte",
		"go", "java", "kt", "class", "jar", "php", "rb", "cs", "dll", "exe", "pyc", "xml", "yml", "yaml", "toml", "txt", "lock", "log":
		return true
	}
	return false
}

// ipv4 reads four numbers at i. A version can look the same; it is taken for one when
//   - more numbers or letters belong to it: v1.2.3.4, 1.2.3.4.5, 1.2.3.4-beta, libfoo-1.2.3.4;
//   - a word before it says so: version 4.0.0.0, Version=4.0.0.0, release: 1.2.3.4, or a comparison does (>=1.2.3.4);
//   - it is a product token that ends in zeros: Chrome/120.0.0.0 (but cache/10.0.0.7 is how Java prints a host).
//
// Everything else that looks like an address is removed, save those that name no machine: 127.x and 0.0.0.0.
func ipv4(text string, i, last int) (found, bool) {
	if i > last && (word(text[i-1]) || text[i-1] == '.') {
		return found{}, false
	}
	to := i
	for to < len(text) && to-i < 16 && (digit(text[to]) || text[to] == '.') {
		to++
	}
	quad := strings.TrimRight(text[i:to], ".") // the end of a sentence
	to = i + len(quad)
	if strings.Count(quad, ".") != 3 || to < len(text) && word(text[to]) {
		return found{}, false
	}
	a, err := netip.ParseAddr(quad)
	if err != nil || a.IsLoopback() || a.IsUnspecified() {
		return found{}, false
	}
	if to+1 < len(text) && (text[to] == '-' || text[to] == '+') && word(text[to+1]) && !digit(text[to+1]) {
		return found{}, false
	}
	before := text[last:i]
	if n := len(before); n >= 2 {
		p, q := before[n-1], before[n-2]
		switch {
		case (p == '-' || p == '_') && word(q) && !digit(q),
			p == '/' && word(q) && strings.HasSuffix(quad, ".0.0.0"),
			p == '=' && strings.IndexByte("=<>~!^", q) >= 0:
			return found{}, false
		}
	}
	if n := len(before); n >= 1 && strings.IndexByte("~^", before[n-1]) >= 0 || saysVersion(before) {
		return found{}, false
	}
	return found{i, to, KindIP}, true
}

// saysVersion tells whether the last word before a number announces a version.
func saysVersion(before string) bool {
	before = before[max(0, len(before)-24):]
	before = strings.ToLower(strings.TrimRight(before, " :=\"'(`"))
	for _, w := range []string{"version", "ver", "ver.", "release", "rev", "revision", "build", "firmware", "upgrade to", "runtime"} {
		if strings.HasSuffix(before, w) {
			return true
		}
	}
	return false
}

// ipv6 reads an address round the colon at i. Names of code have double colons too (std::vector, Face::Cafe), so an
// address must hold a group of digits only, or three groups with a digit.
func ipv6(text string, i, last int) (found, bool) {
	in := func(c byte) bool { return hex(c) || c == ':' || c == '.' }
	from, to := i, i
	for from > last && i-from < 46 && in(text[from-1]) {
		from--
	}
	for to < len(text) && to-from < 46 && in(text[to]) {
		to++
	}
	s := text[from:to]
	s = strings.TrimRight(s, ".")
	if strings.HasSuffix(s, ":") && !strings.HasSuffix(s, "::") {
		s = s[:len(s)-1]
	}
	to = from + len(s)
	if strings.Count(s, ":") < 2 || from > last && word(text[from-1]) || to < len(text) && word(text[to]) {
		return found{}, false
	}
	a, err := netip.ParseAddr(s)
	if err != nil || a.IsLoopback() || a.IsUnspecified() {
		return found{}, false
	}
	withDigit, onlyDigits := 0, false
	for g := range strings.SplitSeq(s, ":") {
		if hasDigit(g) {
			withDigit++
		}
		onlyDigits = onlyDigits || g != "" && strings.Trim(g, "0123456789") == ""
	}
	return found{from, to, KindIP}, onlyDigits || withDigit >= 3
}

// card reads a payment card number at i: 13 to 19 digits, as one block or in groups, in a range that card networks use
// and with a right check digit. A number after a dot, a slash or a dash belongs to something else.
func card(text string, i, last int) (found, bool) {
	if i > last && (word(text[i-1]) || strings.IndexByte(".-/", text[i-1]) >= 0) {
		return found{}, false
	}
	if c := text[i]; c < '2' || c > '6' {
		return found{}, false
	}
	var digits [19]byte
	n, to, group := 0, i, 0
	groups := make([]int, 0, 6)
	for j := i; j < len(text); j++ {
		c := text[j]
		if digit(c) {
			if n == len(digits) {
				return found{}, false
			}
			digits[n] = c - '0'
			n++
			group++
			to = j + 1
			continue
		}
		if (c != ' ' && c != '-') || group == 0 || j+1 >= len(text) || !digit(text[j+1]) || len(groups) == 5 {
			break
		}
		groups = append(groups, group)
		group = 0
	}
	if len(groups) > 0 && groups[0] != 4 || to < len(text) && (word(text[to]) || text[to] == '.' && to+1 < len(text) && digit(text[to+1])) {
		return found{}, false
	}
	if !network(digits[:n]) || !luhn(digits[:n]) {
		return found{}, false
	}
	return found{i, to, KindCard}, true
}

// network tells whether length and first digits are those of a card network (ISO/IEC 7812 ranges in use).
func network(d []byte) bool {
	if len(d) < 13 {
		return false
	}
	two := int(d[0])*10 + int(d[1])
	switch {
	case d[0] == 4:
		return len(d) == 13 || len(d) == 16 || len(d) == 19
	case two >= 51 && two <= 55, two >= 22 && two <= 27:
		return len(d) == 16
	case two == 34 || two == 37:
		return len(d) == 15
	case two == 30 || two == 36 || two == 38 || two == 39:
		return len(d) == 14
	case two == 35 || two == 60 || two == 62 || two == 64 || two == 65:
		return len(d) >= 16
	}
	return false
}

func luhn(d []byte) bool {
	sum := 0
	for i := range d {
		v := int(d[len(d)-1-i])
		if i%2 == 1 {
			if v *= 2; v > 9 {
				v -= 9
			}
		}
		sum += v
	}
	return sum%10 == 0
}
