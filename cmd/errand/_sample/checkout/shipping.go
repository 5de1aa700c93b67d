package checkout

// perParcel spreads the shipping over the parcels, rounded up.
func perParcel(shipping, parcels int) int {
	return (shipping + parcels - 1) / parcels
}
