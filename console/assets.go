package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"net/http"
	"path"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/errand-dev/errand"
)

//go:embed assets
var assetFiles embed.FS

const assetPrefix = "/assets/"

// assets holds each file under a name with the hash of its content, so that a browser may keep it for ever.
type assets struct {
	stylesheet, mark string // URLs
	byName           map[string]asset
}

type asset struct {
	body, zipped []byte
	mediaType    string
}

func loadAssets() (assets, error) {
	a := assets{byName: map[string]asset{}}
	add := func(file, mediaType string) (url string, err error) {
		body, err := assetFiles.ReadFile("assets/" + file)
		if err != nil {
			return "", fmt.Errorf("the console's %s: %w", file, err)
		}
		var zipped bytes.Buffer
		w, err := gzip.NewWriterLevel(&zipped, gzip.BestCompression)
		if err != nil {
			return "", err
		}
		if _, err := w.Write(body); err != nil {
			return "", err
		}
		if err := w.Close(); err != nil {
			return "", err
		}
		sum := sha256.Sum256(body)
		ext := path.Ext(file)
		name := strings.TrimSuffix(file, ext) + "." + hex.EncodeToString(sum[:6]) + ext
		a.byName[name] = asset{body: body, zipped: zipped.Bytes(), mediaType: mediaType}
		return assetPrefix + name, nil
	}
	var err error
	if a.stylesheet, err = add("errand.css", "text/css; charset=utf-8"); err != nil {
		return a, err
	}
	a.mark, err = add("errand.svg", "image/svg+xml")
	return a, err
}

func (c *Console) asset(ec echo.Context) error {
	return c.sendAsset(ec, ec.Param("file"), "public, max-age=31536000, immutable")
}

// favicon answers the browsers that ask at the one fixed address; it is kept for a day only.
func (c *Console) favicon(ec echo.Context) error {
	return c.sendAsset(ec, path.Base(c.assets.mark), "public, max-age=86400")
}

func (c *Console) sendAsset(ec echo.Context, name, cache string) error {
	a, ok := c.assets.byName[name]
	if !ok {
		return errand.NotFound("asset")
	}
	h := ec.Response().Header()
	h.Set("Cache-Control", cache)
	h.Set("Vary", "Accept-Encoding")
	if strings.Contains(ec.Request().Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		return ec.Blob(http.StatusOK, a.mediaType, a.zipped)
	}
	return ec.Blob(http.StatusOK, a.mediaType, a.body)
}
