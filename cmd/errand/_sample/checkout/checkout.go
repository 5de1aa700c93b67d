// Package checkout says what an order costs. Amounts are cents.
package checkout

// Item is one thing in the basket.
type Item struct {
	Name   string `json:"name"`
	Cents  int    `json:"cents"`
	Parcel bool   `json:"parcel"` // has to be sent; a gift card does not
}

// Order is a basket and what its shipping costs.
type Order struct {
	ID       string `json:"id"`
	Items    []Item `json:"items"`
	Shipping int    `json:"shipping"`
}

// Total is the price of the order, with shipping rounded up to whole cents for each parcel.
func Total(o Order) int {
	sum := 0
	for _, item := range o.Items {
		sum += item.Cents
	}
	parcels := countParcels(o.Items)
	return sum + perParcel(o.Shipping, parcels)*parcels
}

func countParcels(items []Item) int {
	n := 0
	for _, item := range items {
		if item.Parcel {
			n++
		}
	}
	return n
}
