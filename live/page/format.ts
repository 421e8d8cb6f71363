// Formats numbers for people.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

export function bytes(value: number): string {
  const sign = value < 0 ? "−" : "";
  let rest = Math.abs(value);
  let unit = 0;
  while (rest >= 999.5 && unit + 1 < UNITS.length) {
    rest /= 1024;
    ++unit;
  }
  const digits = unit === 0 || rest >= 99.95 ? 0 : rest >= 9.995 ? 1 : 2;
  return `${sign}${rest.toFixed(digits)} ${UNITS[unit]}`;
}

export function signed(value: number): string {
  return value > 0 ? `+${bytes(value)}` : bytes(value);
}

export function count(value: number): string {
  if (Math.abs(value) < 1e4) return Math.round(value).toLocaleString("en");
  return Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 }).format(value);
}

export function share(part: number, whole: number): string {
  if (whole <= 0) return "0 %";
  const value = 100 * part / whole;
  if (value !== 0 && Math.abs(value) < 0.05) return "< 0.1 %";
  return `${value.toFixed(value < 9.95 ? 1 : 0)} %`;
}

export function duration(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = Math.floor(ms / 1000);
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${seconds % 60} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${minutes % 60} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

export function clock(ms: number): string {
  return new Date(ms).toLocaleTimeString("en-GB");
}
